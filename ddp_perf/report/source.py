"""What a report is written from: a session's results, and what else lies beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.metric import STEP_TIME
from ddp_perf.history.analysis import newest_work
from ddp_perf.history.records import HistoryPoint
from ddp_perf.history.store import HistoryStore
from ddp_perf.selftest.curve import PowerCurve
from ddp_perf.selftest.result_file import read_power_curve
from ddp_perf.session.result import SuiteResult

SELFTEST = Path("artifacts/selftest/selftest.json")  # where `ddp-perf selftest` leaves it


class ReportSource(msgspec.Struct, frozen=True, kw_only=True):
    """A session, the self-test of the machine that measured it, and the sessions before it."""

    suites: tuple[SuiteResult, ...]
    complete: bool  # False: the session did not measure all that was asked of it
    curve: PowerCurve | None = None
    sessions: dict[
        tuple[str, str], list[HistoryPoint]
    ] = {}  # of the step time, by accelerator and case id


def history_points_for(
    suites: Sequence[SuiteResult], url: str
) -> dict[tuple[str, str], list[HistoryPoint]]:
    """The sound sessions of these cases in this history, oldest first; of their newest work.

    Raises HistoryError.
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


def curve_for(suites: Sequence[SuiteResult], path: Path) -> PowerCurve | None:
    """The self-test in this file, where there is one and it is of a machine of these suites.

    Raises ResultsError where the file is there and cannot be read.
    """
    curve = read_power_curve(path)
    if curve is None:
        return None
    keys = {suite.environment.accelerator_key for suite in suites}
    return curve if curve.environment.accelerator_key in keys else None
