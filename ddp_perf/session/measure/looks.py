"""Interim looks: which undecided cases get more launches, and which verdicts are final.

The first look is after the suite's number of launches. A verdict that is decided then is final,
and its case is done: a quiet session is short. An undecided case that more launches may decide
gets another look, until its budget is spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, Look, Measurement
from ddp_perf.core.metric import STRUCTURE, needs_single_rank
from ddp_perf.core.verdict import UNDECIDED
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
        if measurement.failures or look is None or _too_long(measurement, look, budget_s):
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


def merge_findings(before: Iterable[Finding], now: Iterable[Finding]) -> list[Finding]:
    """Merge the findings of another look into those before.

    A decided finding stays as it was. Structure is exact, and its newest finding replaces the
    older one. An undecided finding is replaced, and keeps the verdicts of earlier looks. A case
    that failed since then is not judged again, and keeps its findings.
    """
    earlier = {(finding.case_id, finding.metric): finding for finding in before}
    merged = [
        _merged(earlier.pop((finding.case_id, finding.metric), None), finding) for finding in now
    ]
    return [*merged, *earlier.values()]


def _merged(old: Finding | None, new: Finding) -> Finding:
    if old is None or old.launches == new.launches:
        return old or new
    if new.metric == STRUCTURE:
        return new
    if old.verdict.outcome not in UNDECIDED:
        return old
    look = Look(launches=old.launches, verdict=old.verdict)
    return msgspec.structs.replace(new, earlier=(*old.earlier, look))


def describe_more(more: Mapping[str, int], looks: Mapping[str, Sequence[int]]) -> str:
    """Return one line on why the session continues with further launches."""
    cases = f"{len(more)} of {len(looks)} cases"
    return f"{cases} are undecided: {sum(more.values())} more launches"
