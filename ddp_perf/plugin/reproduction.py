"""The commands that measure or count again: a case, by its test; and the whole session."""

from __future__ import annotations

import os
import shlex
from collections.abc import Container, Iterator, Sequence
from typing import Any

import pytest

from ddp_perf.baselines.save import without_saving
from ddp_perf.core.data import DATA_FOLDER
from ddp_perf.core.injection import Injection
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.core.secrets import without_passwords
from ddp_perf.plugin import is_named_by_project
from ddp_perf.plugin.items import asserted_metric, case_of
from ddp_perf.plugin.option_values import REPLAY
from ddp_perf.plugin.rootdir import PATH_OPTIONS

# The options that change a case, or how often it is launched.
WORK = (
    "--ddp-config",
    "--ddp-world-sizes",
    "--ddp-batch-sizes",
    "--ddp-hidden-dim",
    "--ddp-num-layers",
    "--ddp-bucket-cap-mb",
    "--ddp-steps",
    "--ddp-launches",
    "--ddp-warmup",
    "--ddp-env",
    "--ddp-inject",
    "--ddp-launcher",
    "--ddp-cluster",
    "--ddp-machine",  # the baseline that it is compared with
)

# The options of one session alone, which do not belong to its repetition.
_ONCE = ("--ddp-reason", "--ddp-inject")
# The options of a duel, which stores nothing.
_DUEL = ("--ddp-against", "--ddp-budget")
_DUEL_FLAG = "--ddp-touched"  # it has no value
# A script that runs pytest, as ci/bench does, gives its own command line in this variable.
SCRIPT = "DDP_PERF_COMMAND"


def session_command(config: pytest.Config) -> str:
    """Return the command that measures the session again, as it was given.

    It is meant for a shell in the directory where the session was started. A path follows its
    option and "=": see ddp_perf/plugin/rootdir.py.
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
    """Return the arguments as they were given, without passwords and what accepts a change."""
    script = shlex.split(os.environ.get(SCRIPT, ""))
    given = script or ["pytest", *map(str, config.invocation_params.args)]
    return [without_passwords(each) for each in without_saving(given, ("accept",))]


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
