"""The input of a report: a session's results, its history, and the self-test of its machine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.metric import STEP_TIME
from ddp_perf.history.records import HistoryPoint
from ddp_perf.history.store import HistoryStore
from ddp_perf.history.text import audit_lines
from ddp_perf.history.trend import newest_work
from ddp_perf.selftest.curve import PowerCurve, read_power_curve
from ddp_perf.session.result import SuiteResult

SELFTEST = Path("artifacts/selftest/selftest.json")  # the output of `ddp-perf selftest`


class ReportSource(msgspec.Struct, frozen=True, kw_only=True):
    """A session, the self-test of the machine that measured it, and the earlier sessions."""

    suites: tuple[SuiteResult, ...]
    complete: bool  # False: the session did not measure all requested cases
    curve: PowerCurve | None = None
    # Step times, by accelerator and case id.
    sessions: dict[tuple[str, str], list[HistoryPoint]] = {}
    audits: tuple[str, ...] = ()  # what the audits of the gate found on these accelerators


def history_points_for(
    suites: Sequence[SuiteResult], url: str
) -> dict[tuple[str, str], list[HistoryPoint]]:
    """Return the sound sessions of these cases in this history, oldest first.

    Only sessions with the newest fingerprint of each case are returned. Raises HistoryError.
    """
    wanted = {
        (suite.environment.accelerator_key, case_id)
        for suite in suites
        for case_id in suite.measurements
    }
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        found = newest_work(
            store.series(case, STEP_TIME.name)
            for case in store.cases()
            if (case.accelerator, case.case_id) in wanted
        )
    return {(series.case.accelerator, series.case.case_id): series.sound() for series in found}


def audit_lines_for(suites: Sequence[SuiteResult], url: str) -> list[str]:
    """Return what the audits of the gate in this history found on the accelerators of the suites.

    Raises HistoryError.
    """
    keys = {suite.environment.accelerator_key for suite in suites}
    with contextlib.closing(HistoryStore(url, create=False)) as store:
        return audit_lines([audit for audit in store.audits() if audit.accelerator in keys])


def curve_for(suites: Sequence[SuiteResult], path: Path) -> PowerCurve | None:
    """Return the self-test in this file, or None if there is none of a machine of these suites.

    Raises ResultsError if the file exists and cannot be read.
    """
    curve = read_power_curve(path)
    if curve is None:
        return None
    keys = {suite.environment.accelerator_key for suite in suites}
    return curve if curve.environment.accelerator_key in keys else None
