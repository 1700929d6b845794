"""Interim looks: which undecided cases get more launches.

The first look is after the suite's number of launches. A verdict that is decided then is final,
and its case is done: a quiet session is short. An undecided case that more launches may decide
gets another look, until its budget is spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import needs_single_rank
from ddp_perf.render.units import counted
from ddp_perf.session.measure.rounds import launch_s
from ddp_perf.stats.rule.looks import next_look, plan_looks


def looks_of(
    cases: Iterable[Case], baseline: Baseline, budget_s: float
) -> dict[str, tuple[int, ...]]:
    """Return the number of launches at each look, by case id, within the budget.

    The baseline gives the time of a launch, not this session: see `plan_looks`.
    """
    looks = {}
    for case in cases:
        first, one_s = case.schedule.launches, launch_s(case, baseline)
        affordable = int(budget_s / one_s) if one_s else first
        looks[case.id] = plan_looks(first, affordable)
    return looks


def launches_before_next_look(
    measurements: Mapping[str, Measurement],
    findings: Iterable[Finding],
    looks: Mapping[str, tuple[int, ...]],
    budget_s: float,
) -> dict[str, int]:
    """Return how many launches each case gets before the next look, by case id; empty: none."""
    more: dict[str, int] = {}
    for finding in findings:
        measurement = measurements[finding.case_id]
        case, have = measurement.case, len(measurement.launches)
        look = next_look(finding.verdict, have, looks[case.id])
        if measurement.failed or look is None or _too_long(measurement, look, budget_s):
            continue
        paired = [case.id]
        if needs_single_rank(finding.metric) and case.single is not None:
            paired.append(case.single)  # the ratio is paired within each round
        for case_id in paired:
            more[case_id] = max(more.get(case_id, 0), look - have)
    return more


def _too_long(measurement: Measurement, look: int, budget_s: float) -> bool:
    """Return whether launches up to the look would exceed the budget. To stop is always safe."""
    spent_s = sum(launch.wall_s for launch in measurement.launches)
    return spent_s / len(measurement.launches) * look > budget_s


def describe_more(more: Mapping[str, int], looks: Mapping[str, Sequence[int]]) -> str:
    """Return one line on why the session continues with further launches."""
    launches = counted(sum(more.values()), "more launch")
    verb = "is" if len(more) == 1 else "are"
    return f"{len(more)} of {counted(len(looks), 'case')} {verb} undecided: {launches}"
