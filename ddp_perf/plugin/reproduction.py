"""The commands that measure again: a case, by its test and its options; and the whole session."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ddp_perf.baselines.save import without_saving
from ddp_perf.core.data import DATA_FOLDER
from ddp_perf.core.injection import Injection
from ddp_perf.core.metric import STEP_TIME
from ddp_perf.plugin.items import asserted_metric, case_of
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
    "--ddp-machine",  # the baseline that it is compared with
)

# The options of one session alone, which do not belong to its repetition.
_ONCE = ("--reason", "--ddp-inject")
# A script that runs pytest, as ci/bench does, gives its own command line in this variable.
SCRIPT = "DDP_PERF_COMMAND"


def session_command(config: pytest.Config) -> str:
    """Return the command that measures the session again, as it was given.

    It is meant for a shell in the directory where the session was started. A path follows its
    option and "=": see ddp_perf/plugin/rootdir.py.
    """
    script = shlex.split(os.environ.get(SCRIPT, ""))
    given = script or ["pytest", *map(str, config.invocation_params.args)]
    return shlex.join(_repeated(without_saving(given, ("accept",))))


def _repeated(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments without those of `_ONCE`. Each path follows "="."""
    left = iter(zip(arguments, [*arguments[1:], ""], strict=True))
    for argument, following in left:
        name, equals, _ = argument.partition("=")
        if argument in PATH_OPTIONS and following:
            yield f"{argument}={following}"
            next(left)
        elif name not in _ONCE:
            yield argument
        elif not equals:
            next(left, None)  # its value


def commands(config: pytest.Config, items: Sequence[pytest.Item]) -> dict[tuple[str, str], str]:
    """Return the command that measures each case again, by suite and case id.

    It is meant for a shell in the directory where the session was started. It runs the test that
    asserts the case's step time, or else the case's first test.
    """
    chosen: dict[tuple[str, str], str] = {}
    for item in items:
        case = case_of(item)
        if case is None:
            continue
        if case.key not in chosen or asserted_metric(item) == STEP_TIME.name:
            file = os.path.relpath(item.path, config.invocation_params.dir)
            chosen[case.key] = file + "".join(item.nodeid.partition("::")[1:])
    arguments = _work_arguments(config)
    data = {DATA_FOLDER: os.environ[DATA_FOLDER]} if os.environ.get(DATA_FOLDER) else {}
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in data.items())
    # The script chose the environment; a shell in which it was started need not have it on PATH.
    program = ".venv/bin/pytest" if SCRIPT in os.environ else "pytest"
    return {
        key: before + shlex.join([program, "-m", "perf", node, *arguments])
        for key, node in chosen.items()
    }


def _work_arguments(config: pytest.Config) -> list[str]:
    return [f"{option}={value}" for option in WORK for value in _written(config.getoption(option))]


def _written(value: Any) -> list[str]:
    """Return one text for each time that the option was given."""
    if value is None or value in ((), []):
        return []
    if isinstance(value, list):
        return [_text(one) for one in value]
    return [",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def _text(value: Any) -> str:
    if isinstance(value, Injection):
        return value.text
    return "=".join(value) if isinstance(value, tuple) else str(value)
