"""The cases of a judged session that cannot be stored yet, and their further launches.

A disturbed or noisy case gives no baseline. More launches often do: its budget allows for up to
four times the suite's launches. They are never judged: the looks did not plan them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ddp_perf.baselines.save import SaveMode, refusal
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.left_out import reasons_to_leave_out
from ddp_perf.session.result import SuiteResult
from ddp_perf.session.store_baseline import new_sessions, not_wanted

_MOST_TIMES = 4  # the launches of the suite
_WITHOUT_LEVEL = (Outcome.NO_BASELINE, Outcome.INCOMPARABLE)


def cases_to_launch_again(
    result: SuiteResult,
    case_ids: Collection[str],
    baseline: Baseline,
    *,
    mode: SaveMode,
    budget_s: float,
) -> list[Case]:
    """Return the cases that cannot be stored yet and have the budget for further launches."""
    return [
        new.case
        for new in new_sessions(result)
        if new.case.id in case_ids
        and not not_wanted(new, baseline.cases.get(new.case.id), mode)
        and not refusal(new)
        and _lacks(result, new.case.id, reasons_to_leave_out(new, result, mode))
        and _is_affordable(result, new.case, budget_s)
    ]


def launches_in_rounds(
    cases: Sequence[Case], case_ids: Collection[str], result: SuiteResult
) -> dict[str, int]:
    """Return how many more launches each case gets, by case id.

    The one-rank case of a case gets them in the same rounds, unless a launch of it failed.
    """
    more: dict[str, int] = {}
    for case in cases:
        more[case.id] = case.schedule.launches
        single = case.single
        if single in case_ids and single is not None and not result.measurements[single].failed:
            more[single] = case.schedule.launches
    return more


def _lacks(result: SuiteResult, case_id: str, metrics: Collection[str]) -> bool:
    """Return whether the case has no level of one of the metrics, and this session gives none."""
    found = [result.finding(case_id, metric) for metric in metrics]
    return any(one is not None and one.verdict.outcome in _WITHOUT_LEVEL for one in found)


def _is_affordable(result: SuiteResult, case: Case, budget_s: float) -> bool:
    measurement = result.measurements[case.id]
    launches, first = measurement.launches, case.schedule.launches * (len(measurement.nodes) or 1)
    each_s = sum(launch.wall_s for launch in launches) / len(launches)
    target = len(launches) + first
    return target <= _MOST_TIMES * first and each_s * target <= budget_s
