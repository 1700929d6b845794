"""The cases of a session that cannot be stored yet, and their further launches.

A disturbed or noisy case gives no baseline. More launches often do: its budget allows for up to
four times the suite's launches. They are only for cases without a level, so that no verdict depends
on how many there are.
"""

from __future__ import annotations

from collections.abc import Collection

from ddp_perf.baselines.save import SaveMode, refusal
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.left_out import reasons_to_leave_out
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions, not_wanted

_MOST_TIMES = 4  # the launches of the suite
_WITHOUT_LEVEL = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE)


def launches_before_storing(
    result: SuiteResult,
    case_ids: Collection[str],
    baseline: Baseline,
    *,
    mode: SaveMode | None,
    budget_s: float,
) -> dict[str, int]:
    """Return how many more launches each case gets before it is stored, by case id; empty: none.

    A case of several ranks gets them in the same rounds as its one-rank case.
    """
    more: dict[str, int] = {}
    for new in new_sessions(result) if mode is not None else ():
        case, stored = new.case, baseline.cases.get(new.case.id)
        if case.id not in case_ids or mode is None or not_wanted(new, stored, mode):
            continue
        if refusal(new) or not _lacks(result, case.id, reasons_to_leave_out(new, result, mode)):
            continue
        launches, first = result.measurements[case.id].launches, case.schedule.launches
        each_s = sum(launch.wall_s for launch in launches) / len(launches)
        target = len(launches) + first
        if target > _MOST_TIMES * first or each_s * target > budget_s:
            continue
        more[case.id] = first
        if case.single is not None and case.single in case_ids:
            more[case.single] = first
    return more


def _lacks(result: SuiteResult, case_id: str, metrics: Collection[str]) -> bool:
    """Return whether the case has no level of one of the metrics, and this session gives none."""
    found = [result.finding(case_id, metric) for metric in metrics]
    return any(one is not None and one.verdict.outcome in _WITHOUT_LEVEL for one in found)
