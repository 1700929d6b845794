"""Older versions of the results file, brought to the newest one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import METRICS

_SAVED = re.compile(r"stored \((?P<mode>missing|append|accept)\) in (?P<path>.*)", re.DOTALL)
_REFUSED = "not stored: "


def from_version_1(data: dict[str, Any]) -> None:
    """Change the raw data of version 1 to version 2, in place.

    Version 1 named the stored sessions of a finding ``nights``, stored sentences on what was
    saved and what was refused, and stored the conditions that all ranks share with the launch.
    """
    for suite in data["suites"]:
        for launch in _launches(suite):
            _move_conditions(launch)
        for finding in suite.get("findings", ()):
            if "nights" in finding:
                finding["sessions"] = finding.pop("nights")
        saved, refused = suite.get("saved", {}), suite.get("not_saved", {})
        suite["saved"] = {case_id: _saved(text, suite) for case_id, text in saved.items()}
        suite["not_saved"] = {case_id: _refused(text) for case_id, text in refused.items()}


def from_version_2(data: dict[str, Any]) -> None:
    """Change the raw data of version 2 to version 3, in place.

    The figures of a launch in version 2 are of its median step. The steps are there, so all figures
    are computed again. Findings keep the figures that they were judged by. The CPU time of a rank
    was that of its main thread alone, which nothing reads; so no case gates it.
    """
    for suite in data["suites"]:
        for measurement in suite["measurements"].values():
            measurement["case"]["tolerances"]["cpu_time"] = None
        for launch in _launches(suite):
            for rank in launch["ranks"]:
                rank["cpu_s"] = []
        suite["summaries"] = {}
        with contextlib.suppress(ArithmeticError, ValueError):  # the reader names the wrong field
            suite["summaries"] = _summaries(suite["measurements"])


def from_version_3(data: dict[str, Any]) -> None:
    """Change the raw data of version 3 to version 4, in place.

    Version 3 had one text for all metrics that were left out of a stored session, with their
    titles; or, without a new number, the reason by metric.
    """
    for suite in data["suites"]:
        for saved in suite.get("saved", {}).values():
            if not isinstance(without := saved.get("without"), dict):
                saved["without"] = _left_out(without or "")


def _left_out(text: str) -> dict[str, str]:
    return {metric.name: text for metric in METRICS if metric.title in text}


def _summaries(measurements: dict[str, Any]) -> Any:
    """Return the summaries of every launch as raw data."""
    from ddp_perf.stats.summary import (
        summaries_of,
    )  # imports numpy, which collection can do without

    measured = msgspec.convert(measurements, dict[str, Measurement])
    return msgspec.to_builtins(summaries_of(measured))


def _launches(suite: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the launches of a suite, judged or not."""
    for measurement in suite["measurements"].values():
        yield from measurement["launches"]
    for launches in suite.get("explaining", {}).values():
        yield from launches


def _move_conditions(launch: dict[str, Any]) -> None:
    """Move the conditions of a launch to each of its ranks. A known figure of a rank stays."""
    shared = launch.pop("conditions", {})
    for rank in launch["ranks"]:
        own = rank.get("conditions", {})
        known = {name: value for name, value in own.items() if value is not None}
        rank["conditions"] = {**own, **shared, **known}


def _saved(text: str, suite: dict[str, Any]) -> dict[str, str]:
    if found := _SAVED.fullmatch(text):
        return found.groupdict()
    return {"path": suite["baseline_path"], "mode": suite["save_mode"]}


def _refused(text: str) -> dict[str, str]:
    return {"reason": text.removeprefix(_REFUSED)}
