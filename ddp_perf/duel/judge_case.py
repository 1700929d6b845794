"""The verdicts on the metrics of a case, and which of them decide.

A case is red only if training got slower or needs more memory. So the time of a step and the peak
memory have to be decided. The other metrics can turn the case red, but cannot make it FASTER. While
one of them seems to be worse, the case is not decided: it takes more pairs to be sure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from ddp_perf.core.duel import DuelOutcome, PairedVerdict
from ddp_perf.core.metric import CPU_TIME, PEAK_MEMORY, STEP_TIME, TAIL, metric_spec, metric_title
from ddp_perf.duel.case_plan import CasePlan
from ddp_perf.duel.figures import PairFigures, log_ratios, with_metric
from ddp_perf.duel.values import MetricDuel
from ddp_perf.stats.interval import mean_estimate
from ddp_perf.stats.pairs import judge_pairs

_MEAN_STEP = "mean step"
_SLOWER, _FASTER, _UNDECIDED = DuelOutcome.SLOWER, DuelOutcome.FASTER, DuelOutcome.UNDECIDED


def judge_case(
    case_id: str, figures: Sequence[PairFigures], plan: CasePlan, *, ended: bool
) -> tuple[MetricDuel, ...]:
    """Judge each metric of a case by its pairs so far; ``ended``: there will be no more."""
    values = {name: with_metric(figures, name) for name in plan.plans}
    verdicts = {
        name: judge_pairs(log_ratios(values[name]), plan.plans[name], ended=ended)
        for name in plan.plans
        if values[name]
    }
    worse = {name for name in verdicts if _seems_worse(log_ratios(values[name]))}
    if _seems_worse(log_ratios([(pair.a.mean_step_s, pair.b.mean_step_s) for pair in figures])):
        worse.add(_MEAN_STEP)
    parts = {name: _part(name, verdicts, plan, worse, ended=ended) for name in verdicts}
    return tuple(
        MetricDuel(
            case_id=case_id,
            metric=name,
            verdict=verdict,
            a=statistics.median(a for a, _ in values[name]),
            b=statistics.median(b for _, b in values[name]),
            tolerance=plan.plans[name].tolerance,
            decides=parts[name].decides,
            why=parts[name].why,
        )
        for name, verdict in sorted(verdicts.items(), key=lambda one: not parts[one[0]].decides)
    )


def is_decided(metrics: Sequence[MetricDuel]) -> bool:
    """Return whether further pairs would change nothing: red, or all that decide are decided."""
    outcomes = {metric.verdict.outcome for metric in metrics if metric.decides}
    return _SLOWER in outcomes or (bool(outcomes) and _UNDECIDED not in outcomes)


class _Part(NamedTuple):
    decides: bool
    why: str | None = None


def _seems_worse(logs: Sequence[float]) -> bool:
    """Return whether the 95 % interval of the mean is above 0, however often one has looked."""
    low = mean_estimate(logs).low
    return low is not None and low > 0


def _part(
    name: str,
    verdicts: Mapping[str, PairedVerdict],
    plan: CasePlan,
    worse: Set[str],
    *,
    ended: bool,
) -> _Part:
    """Return whether a metric decides, and why it does not, or does in place of another.

    ``worse`` are the metrics that seem to be worse.
    """
    if name in (STEP_TIME.name, CPU_TIME.name):
        return _part_of_time(name, verdicts, plan, worse)
    outcome = verdicts[name].outcome
    if name == PEAK_MEMORY.name:
        if outcome is _FASTER:
            return _Part(False, "less memory makes no step faster")
        return _Part(True)
    may_be_red = outcome is _SLOWER or (outcome is _UNDECIDED and name in worse and not ended)
    numerator = metric_spec(name).numerator
    if may_be_red and numerator is not None and numerator not in worse:
        return _Part(False, f"{metric_title(numerator)} did not grow: that of one rank shrank")
    if may_be_red and name == TAIL.name and _MEAN_STEP not in worse:
        return _Part(False, "the mean step did not grow: its level shrank")
    return _Part(True) if may_be_red else _Part(False, "it decides only if it is SLOWER")


def _part_of_time(
    name: str, verdicts: Mapping[str, PairedVerdict], plan: CasePlan, worse: Set[str]
) -> _Part:
    """Return the part of the step's wall time or CPU time.

    Wall time is what a user waits for. Where the CPU time was chosen since wall time is unsteady,
    it decides until the wall time itself is decided, and unless it is fine while the wall time
    seems to be longer: a step that sleeps uses no CPU time.
    """
    if plan.time == STEP_TIME.name:
        why = plan.why or "step time decides: CPU time adds up the threads of a rank"
        return _Part(True) if name == STEP_TIME.name else _Part(False, why)
    wall, cpu = (verdicts.get(one.name) for one in (STEP_TIME, CPU_TIME))
    by_wall = wall is not None and (
        wall.outcome is not _UNDECIDED
        or (STEP_TIME.name in worse and cpu is not None and cpu.outcome is not _SLOWER)
    )
    if by_wall:
        why = "step time decides: a step that waits longer uses no CPU time"
        return _Part(True) if name == STEP_TIME.name else _Part(False, why)
    return _Part(name == CPU_TIME.name, plan.why)
