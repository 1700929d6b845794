"""Questions about an item of pytest, and the commands that measure it again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Container, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ddp_perf.baselines.save import without_saving
from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.metric import EXACT, METRICS, NODES, STEP_TIME, STRUCTURE
from ddp_perf.core.secret import without_secrets
from ddp_perf.core.subject import DATA_FOLDER
from ddp_perf.errors import did_you_mean
from ddp_perf.plugin import is_named_by_project
from ddp_perf.plugin.option_values import REPLAY

# Questions about an item of pytest: its case, its metric, and the process that runs it.


_KNOWN = [*EXACT, NODES, *(metric.name for metric in METRICS)]


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that ``ddp_case`` gives to the item, or None if it takes none."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("ddp_case") if callspec else None
    return case if isinstance(case, Case) else None


def fixtures_of(item: pytest.Item) -> Sequence[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def is_counted(item: pytest.Item) -> bool:
    """Return whether the item counts the step of its case, and measures nothing."""
    return "ddp_counted" in fixtures_of(item)


def counted_case(item: pytest.Item) -> Case | None:
    """Return the case whose step the item counts, or None if it counts none."""
    return case_of(item) if is_counted(item) else None


def asserted_metric(node: pytest.Item | pytest.Function) -> str:
    """Return the metric of ``ddp_target``, or of the ``ddp_metric`` marker; else the structure.

    Raises CollectError for a name that is no metric.
    """
    callspec = getattr(node, "callspec", None)
    target = callspec.params.get("ddp_target") if callspec else None
    if isinstance(target, str):
        return target
    marker = node.get_closest_marker("ddp_metric")
    metric = str(*marker.args[:1]) if marker else STRUCTURE
    if metric not in _KNOWN:
        raise pytest.Collector.CollectError(
            f"{node.nodeid}: ddp_metric: {metric!r} is not one of {', '.join(_KNOWN)}"
            f"{did_you_mean(metric, _KNOWN)}"
        )
    return metric


def in_xdist_worker(config: pytest.Config) -> bool:
    """Return whether pytest-xdist runs this process beside others."""
    return hasattr(config, "workerinput")


# A path that pytest mistakes for that of a test, and so for the place of the project.
#
# pytest searches for its root directory before it has any plugin's options: `--ddp-report DIR` is
# then an unknown option and a test path. It leaves out what begins with a dash: `--ddp-report=DIR`.


PATH_OPTIONS = ("--ddp-cluster", "--ddp-config", "--ddp-json", "--ddp-report")


def refuse_misled_root(config: pytest.Config) -> None:
    """Raise UsageError if the value of an option may have misled pytest's search for its root."""
    started = config.invocation_params.dir
    if config.option.rootdir or config.option.inifilename:
        return
    if config.inipath and started.is_relative_to(config.inipath.parent):
        return  # the root is that of the directory where pytest was started
    for option, value in _apart(config):
        path = Path(os.path.abspath(started / value))
        if path.exists() and not path.is_relative_to(started):
            raise pytest.UsageError(
                f"{option} {value}: pytest took the path after the space for that of a test, and"
                f" {config.rootpath} for the project; write {shlex.quote(f'{option}={value}')}"
            )


def _apart(config: pytest.Config) -> Iterator[tuple[str, str]]:
    """Yield the options of the command line whose value is an argument of its own."""
    for option, value in pairwise(map(str, config.invocation_params.args)):
        if option in PATH_OPTIONS:
            yield option, value


# The commands that measure or count again: a case, by its test; and the whole session.


# The options that change a case, or how often it is launched.
WORK = (
    "--ddp-config",
    "--ddp-world-sizes",
    "--ddp-batch-sizes",
    "--ddp-steps",
    "--ddp-launches",
    "--ddp-env",
    "--ddp-inject",
    "--ddp-launcher",
    "--ddp-cluster",
    "--ddp-machine",  # the baseline that it is compared with
)

# The options of one session alone, which do not belong to its repetition.
_ONCE = ("--ddp-reason", "--ddp-inject", "--ddp-notify")
# The options of a duel, which stores nothing.
_DUEL = ("--ddp-against", "--ddp-budget")
_DUEL_FLAG = "--ddp-touched"  # it has no value
# A script that runs pytest, as ci/bench does, gives its own command line in this variable.
SCRIPT = "DDP_PERF_COMMAND"


def session_command(config: pytest.Config) -> str:
    """Return the command that measures the session again, as it was given.

    It is meant for a shell in the directory where the session was started. A path follows its
    option and "=": see ddp_perf/plugin/items.py.
    """
    return shlex.join(_repeated(_given(config), _ONCE))


def counting_command(config: pytest.Config) -> str:
    """Return the command that counts the session's work tests again, and may store the counts."""
    if config.getoption("ddp_against") is None:
        replays = str(config.getoption("ddp_launcher")).startswith(REPLAY)
        without = (*_ONCE, "--ddp-launcher") if replays else _ONCE
        return shlex.join(_repeated(_given(config), without))
    given = [argument for argument in _given(config) if argument != _DUEL_FLAG]
    return shlex.join([*_repeated(given, (*_ONCE, *_DUEL, "-m")), "-m", "work"])


def _given(config: pytest.Config) -> list[str]:
    """Return the arguments as they were given, without secrets and what accepts a change."""
    script = shlex.split(os.environ.get(SCRIPT, ""))
    given = script or ["pytest", *map(str, config.invocation_params.args)]
    return [*without_secrets(without_saving(given, ("accept",)))]


def _repeated(arguments: Sequence[str], without: Container[str]) -> Iterator[str]:
    """Yield the arguments without these options and their values. Each path follows "="."""
    left = iter(zip(arguments, [*arguments[1:], ""], strict=True))
    for argument, following in left:
        name, equals, _ = argument.partition("=")
        if argument in PATH_OPTIONS and following:
            yield f"{argument}={following}"
            next(left)
        elif name not in without:
            yield argument
        elif not equals:
            next(left, None)  # its value


def commands(config: pytest.Config, items: Sequence[pytest.Item]) -> dict[tuple[str, str], str]:
    """Return the command that measures each case again, by suite and case id.

    It is meant for a shell in the directory where the session was started. It runs the test that
    asserts the case's step time, or else the case's first test.
    """
    chosen: dict[tuple[str, str], pytest.Item] = {}
    for item in items:
        case = case_of(item)
        if case is None:
            continue
        if case.key not in chosen or asserted_metric(item) == STEP_TIME.name:
            chosen[case.key] = item
    return {key: _command_of(item, config) for key, item in chosen.items()}


def _command_of(item: pytest.Item, config: pytest.Config) -> str:
    node = os.path.relpath(item.path, config.invocation_params.dir)
    node += "".join(item.nodeid.partition("::")[1:])
    data = {DATA_FOLDER: os.environ[DATA_FOLDER]} if os.environ.get(DATA_FOLDER) else {}
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in data.items())
    # The script chose the environment; a shell in which it was started need not have it on PATH.
    program = ".venv/bin/pytest" if SCRIPT in os.environ else "pytest"
    arguments = _work_arguments(config)
    if not arguments and not is_named_by_project(config):
        arguments = ["-p", "ddp_perf.plugin"]
    return before + shlex.join([program, "-m", "perf", node, *arguments])


def _work_arguments(config: pytest.Config) -> list[str]:
    given = {option: config.getoption(option) for option in WORK}
    switches = [option for option, value in given.items() if value is True]
    return switches + [
        f"{option}={text}" for option, value in given.items() for text in _written(value)
    ]


def _written(value: Any) -> list[str]:
    """Return one text for each time that the option was given with a value."""
    if value is None or isinstance(value, bool) or value in ((), []):
        return []
    if isinstance(value, list):
        return [_text(one) for one in value]
    return [",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def _text(value: Any) -> str:
    if isinstance(value, Injection):
        return value.text
    return "=".join(value) if isinstance(value, tuple) else str(value)
