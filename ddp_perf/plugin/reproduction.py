"""The command that measures one case again: its test, with the options that made the case."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.data import DATA_FOLDER
from ddp_perf.core.injection import Injection
from ddp_perf.core.metric import STEP_TIME

# Every option that changes what a case is, or how often it is launched.
WORK = (
    *("--ddp-config", "--ddp-world-sizes", "--ddp-batch-sizes", "--ddp-hidden-dim"),
    *("--ddp-num-layers", "--ddp-bucket-cap-mb", "--ddp-steps", "--ddp-launches"),
    *("--ddp-warmup", "--ddp-env", "--ddp-inject"),
)


def commands(config: pytest.Config, items: Sequence[pytest.Item]) -> dict[tuple[str, str], str]:
    """By suite and case id, for a shell in pytest's root directory.

    Of the tests of a case the one that asserts the step time, where there is one.
    """
    chosen: dict[tuple[str, str], str] = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        case = callspec.params.get("ddp_case") if callspec else None
        if isinstance(case, Case):
            marker = item.get_closest_marker("ddp_metric")
            if case.key not in chosen or (marker and marker.args == (STEP_TIME.name,)):
                chosen[case.suite, case.id] = item.nodeid
    arguments = _work_arguments(config)
    data = {DATA_FOLDER: os.environ[DATA_FOLDER]} if os.environ.get(DATA_FOLDER) else {}
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in data.items())
    return {
        key: before + shlex.join(["pytest", "-m", "perf", node, *arguments])
        for key, node in chosen.items()
    }


def _work_arguments(config: pytest.Config) -> list[str]:
    return [
        argument
        for option in WORK
        for value in _written(config.getoption(option))
        for argument in (option, value)
    ]


def _written(value: Any) -> list[str]:
    """One text for each time that the option was given; none where it was not."""
    if value is None or value in ((), []):
        return []
    if isinstance(value, list):
        return [_text(one) for one in value]
    return [",".join(map(str, value)) if isinstance(value, tuple) else str(value)]


def _text(value: Any) -> str:
    if isinstance(value, Injection):
        return value.text
    return "=".join(value) if isinstance(value, tuple) else str(value)
