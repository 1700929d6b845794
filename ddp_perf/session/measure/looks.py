"""More launches while undecided: which cases take them, and which verdicts stand.

The first look is after as many launches as the suite asks for. What is decided then stands,
and its case is done: a quiet session is a short one. What is not, but may be with more launches,
is looked at again, until a case has had its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_perf.core.baseline import Baseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, Look, Measurement
from ddp_perf.core.metric import STRUCTURE, needs_single_rank
from ddp_perf.core.verdict import UNDECIDED
from ddp_perf.session.measure.plan import launch_s
from ddp_perf.stats.rule.looks import next_look, plan_looks


def looks_of(
    cases: Iterable[Case], baseline: Baseline, budget_s: float
) -> dict[str, tuple[int, ...]]:
    """Launches at each look, by case id, as many as the budget has room for.

    How long a launch takes is told by the baseline, not by this session: see `plan_looks`.
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
    """How many launches each case takes before it is judged again; empty: none takes any."""
    more: dict[str, int] = {}
    for finding in findings:
        measurement = measurements[finding.case_id]
        case, have = measurement.case, len(measurement.launches)
        look = next_look(finding.verdict, have, looks[case.id])
        if measurement.failures or look is None or _too_long(measurement, look, budget_s):
            continue
        legs = [case.id]
        if needs_single_rank(finding.metric) and case.single is not None:
            legs.append(case.single)  # scaling is told within a round
        for leg in legs:
            more[leg] = max(more.get(leg, 0), look - have)
    return more


def _too_long(measurement: Measurement, look: int, budget_s: float) -> bool:
    """Return whether launches take longer than in the baseline; to stop early is always safe."""
    spent_s = sum(launch.wall_s for launch in measurement.launches)
    return spent_s / len(measurement.launches) * look > budget_s


def settle(before: Iterable[Finding], now: Iterable[Finding]) -> list[Finding]:
    """The findings that stand after another look.

    What was decided stands as it was. Structure is exact and takes in every launch. What was
    open is replaced, and what earlier looks said of it stays beside it. A case that failed
    meanwhile is not judged again, and keeps what was found before.
    """
    earlier = {(finding.case_id, finding.metric): finding for finding in before}
    settled = [
        _settled(earlier.pop((finding.case_id, finding.metric), None), finding) for finding in now
    ]
    return [*settled, *earlier.values()]


def _settled(old: Finding | None, new: Finding) -> Finding:
    if old is None or old.launches == new.launches:
        return old or new
    if new.metric == STRUCTURE:
        return new
    if old.verdict.outcome not in UNDECIDED:
        return old
    look = Look(launches=old.launches, verdict=old.verdict)
    return msgspec.structs.replace(new, earlier=(*old.earlier, look))


def describe_more(more: Mapping[str, int], looks: Mapping[str, Sequence[int]]) -> str:
    """One line before further launches: why the session goes on."""
    cases = f"{len(more)} of {len(looks)} cases"
    return f"{cases} undecided: {sum(more.values())} more launches"
