"""The verdicts of a case after the second stage: by pairs of launches, or since nothing changed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import msgspec

from ddp_perf.core.duel import DuelOutcome
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import (
    CPU_TIME,
    EFFICIENCY,
    METRICS,
    MISSING_READINGS,
    STEP_TIME,
    metric_spec,
    metric_title,
)
from ddp_perf.core.verdict import OPEN, Outcome, Verdict
from ddp_perf.duel.figures import PairFigures, log_ratios, with_metric
from ddp_perf.duel.values import CaseDuel, MetricDuel
from ddp_perf.render.units import counted
from ddp_perf.settle.references import Changed, Reference
from ddp_perf.stats.rule.comparison import upper_t
from ddp_perf.stats.rule.two_stages import settled_outcome, suspicion

_TIMED = {metric.name for metric in METRICS}
_COMPARED = {
    *(Outcome.PASS, Outcome.IMPROVEMENT, Outcome.SUSPECT, Outcome.REGRESSION),
    *(Outcome.UNDECIDED, Outcome.INVALID),
}
_RULED_OUT = 0.005  # one-sided error of what a PASS rules out, as in the gate


def is_settleable(finding: Finding) -> bool:
    """Return whether launches of both codes can decide the finding, and nobody acknowledged it."""
    if finding.value is None and finding.metric in MISSING_READINGS:
        return False  # this machine has no counter for it: pairs have no reading either
    outcome = finding.verdict.outcome
    return finding.metric in _TIMED and outcome in _COMPARED and not finding.is_expected


def suspicion_of(findings: Iterable[Finding]) -> float | None:
    """Return how suspicious the findings of a case are; None: they need no second stage."""
    found = [
        suspicion(one.verdict, one.tolerance)
        for one in findings
        if is_settleable(one) and one.tolerance is not None
    ]
    return max((one for one in found if one is not None), default=None)


def unchanged_verdict(finding: Finding, reference: Reference, changed: Changed) -> Finding:
    """Return the finding on code that cannot be slower, because it is that of the reference.

    A session that is slower by its own rule stays red: training is slower, by the machine. One that
    was red before is mended: the slower code is gone.
    """
    verdict = finding.verdict
    if not is_settleable(finding):
        return finding
    whose = f"code, packages and options are those of {reference.label}"
    by_itself = finding.by_itself or verdict.outcome
    if verdict.outcome is Outcome.REGRESSION and by_itself is Outcome.REGRESSION:
        machine = f" ({', '.join(changed.machine)})" if changed.machine else ""
        reason = f"the machine: {whose}, so it is the machine that got slower{machine}; "
        return _replaced(finding, Outcome.REGRESSION, reason + verdict.reason)
    if verdict.outcome not in (*OPEN, Outcome.REGRESSION):
        return finding
    return _replaced(finding, Outcome.PASS, f"unchanged: {whose}")


def machine_texts(findings: Iterable[Finding], changed: Changed) -> tuple[str, ...]:
    """Return what of unchanged code seems slower, which the machine is, and what it has new."""
    slower = [
        f"{metric_title(one.metric)} {one.verdict.ratio - 1:+.1%}".replace("%", " %")
        for one in findings
        if is_settleable(one) and one.tolerance is not None
        if one.verdict.ratio is not None and one.verdict.ratio - 1 >= one.tolerance / 2
    ]
    return (*slower, *changed.machine)


def settled_verdicts(
    findings: Sequence[Finding], case: CaseDuel, figures: Sequence[PairFigures], label: str
) -> list[Finding]:
    """Return the findings of a case as the pairs of both codes decide them."""
    by_metric = {one.metric: one for one in case.metrics}
    settled = [
        _settled(finding, deciding, figures, label)
        if is_settleable(finding) and (deciding := _deciding(finding.metric, by_metric)) is not None
        else finding
        for finding in findings
    ]
    return [_by_its_numerator(finding, settled) for finding in settled]


def _deciding(metric: str, by_metric: dict[str, MetricDuel]) -> MetricDuel | None:
    """Return the verdict on the metric. CPU time may decide in the place of the step time."""
    one, other = by_metric.get(metric), by_metric.get(CPU_TIME.name)
    if metric == STEP_TIME.name and one is not None and not one.decides:
        return other if other is not None and other.decides else one
    return one


def _settled(
    finding: Finding, one: MetricDuel, figures: Sequence[PairFigures], label: str
) -> Finding:
    paired, tolerance = one.verdict, finding.tolerance or one.tolerance
    logs = log_ratios(with_metric(figures, one.metric))
    upper = _upper(logs)
    if paired.outcome is DuelOutcome.SLOWER and not one.decides:
        paired = msgspec.structs.replace(paired, outcome=DuelOutcome.UNDECIDED)
    outcome = settled_outcome(paired, finding.verdict.outcome, tolerance)
    if outcome in OPEN and upper is not None and upper < 1 + 2 * tolerance:
        outcome = Outcome.PASS
    elif outcome is Outcome.INVALID:
        outcome = Outcome.UNDECIDED
    by = f", by {metric_title(one.metric)}" if one.metric != finding.metric else ""
    verdict = Verdict(
        outcome=outcome,
        reason=f"{_reason(one, tolerance, label)}{by}",
        ratio=paired.ratio,
        interval=paired.interval,
        upper=upper,
        minimum_detectable=paired.minimum_detectable,
    )
    by_itself = finding.by_itself or finding.verdict.outcome
    return msgspec.structs.replace(finding, verdict=verdict, by_itself=by_itself, disturbance=None)


def _reason(one: MetricDuel, tolerance: float, label: str) -> str:
    paired = one.verdict
    text = f"settled beside {label}: {counted(paired.pairs, 'pair')} of launches"
    if paired.ratio is None:
        return f"{text}, too few"
    share = f"{100 * (paired.ratio - 1):+.1f} %"
    if paired.interval is not None and paired.confidence is not None:
        low, high = (f"{100 * (end - 1):+.1f}" for end in paired.interval)
        share += f" ({_confidence(paired.confidence)} interval {low} to {high} %)"
    return f"{text}, {share}; the tolerance is {100 * tolerance:g} %"


def _confidence(share: float) -> str:
    """Write a confidence without rounding it up to certainty: ``99.97 %``."""
    return f"{math.floor(1e4 * share) / 100:g} %"


def _upper(logs: Sequence[float]) -> float | None:
    """Return the one-sided 99.5 % upper bound of the ratio, or None with fewer than two pairs."""
    if len(logs) < 2:
        return None
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.fmean(logs) + upper_t(len(logs) - 1, _RULED_OUT) * error)


def _by_its_numerator(finding: Finding, settled: Sequence[Finding]) -> Finding:
    """Return a scaling cost without pairs of one rank as PASS, if the step itself is no slower."""
    if finding.metric != EFFICIENCY.name or finding.verdict.outcome not in OPEN:
        return finding
    name = metric_spec(finding.metric).numerator
    step = next((one for one in settled if one.metric == name), None)
    if step is None or step.verdict.outcome not in (Outcome.PASS, Outcome.IMPROVEMENT):
        return finding
    reason = f"the step of all ranks is not slower; {step.verdict.reason}"
    return _replaced(finding, Outcome.PASS, reason)


def _replaced(finding: Finding, outcome: Outcome, reason: str) -> Finding:
    verdict = msgspec.structs.replace(
        finding.verdict,
        outcome=outcome,
        reason=reason,
        more_launches=None,
        likely_launches=None,
        more_sessions=None,
        assumed_sd=None,
        chance=None,
    )
    by_itself = finding.by_itself or finding.verdict.outcome
    return msgspec.structs.replace(finding, verdict=verdict, by_itself=by_itself, disturbance=None)
