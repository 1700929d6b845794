"""The slow-down of the step that a session rules out, and what would decide the rest of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import METRICS, MetricSpec, gated_metrics
from ddp_perf.core.metric_history import LEAST_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import at_most_percent, counted, short_percent
from ddp_perf.session.result import SuiteResult, is_waiting

# Only the bound of such a verdict describes the code.
_BOUNDED = (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.SUSPECT, Outcome.UNDECIDED)
_WITHOUT_BOUND = {
    Outcome.REGRESSION: "slower",
    Outcome.NO_BASELINE: "without a baseline",
    Outcome.INCOMPARABLE: "not comparable",
    Outcome.INVALID: "invalid",
}


def ruled_out_lines(result: SuiteResult) -> list[str]:
    """Return a line for each gated time of a step: the slow-down that no case of the suite has.

    A time gets a line if any of its verdicts has a bound, or lacks one because it is INVALID.
    Verdicts that no test asserts do not count. The last lines are on the cases that are undecided.
    """
    by_case = {(found.case_id, found.metric): found for found in result.asserted_findings()}
    lines = []
    for metric in METRICS:
        if metric.unit != "s":  # a ratio, bytes or energy
            continue
        findings = [
            by_case.get((case_id, metric.name))
            for case_id, measurement in result.measurements.items()
            if metric.name in gated_metrics(measurement.case)
            if result.is_asserted(case_id, metric.name)
        ]
        if any(found is not None and _matters(found) for found in findings):
            lines.append(_line(metric, findings))
    return [*lines, *_needs(result.asserted_findings())] if lines else []


def _line(metric: MetricSpec, findings: Sequence[Finding | None]) -> str:
    bounds = [bound for bound in map(_bound, findings) if bound is not None]
    reasons = Counter(_why_not(found) for found in findings if _bound(found) is None)
    without = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    cases = counted(len(findings), "case")
    if not bounds:
        return f"{metric.title}: nothing is ruled out in {cases}: {without}"
    slower = f"slower by at most {at_most_percent(max(bounds) - 1)}"
    what = f"{slower if max(bounds) > 1 else 'not slower'} in {len(bounds)} of {cases}"
    what += " (99.5 % confidence each)"
    return f"{metric.title}: {what}{without and '; '}{without}"


def _matters(finding: Finding) -> bool:
    return _bound(finding) is not None or finding.verdict.outcome is Outcome.INVALID


def _bound(finding: Finding | None) -> float | None:
    """Return the bound of the ratio that describes the code, or None without one."""
    if finding is None or finding.verdict.outcome not in _BOUNDED:
        return None
    return finding.verdict.upper


def _why_not(finding: Finding | None) -> str:
    if finding is None:
        return "not judged"
    if finding.disturbance:
        return "disturbed"
    return _WITHOUT_BOUND.get(finding.verdict.outcome, "without a bound")


def _needs(findings: Sequence[Finding]) -> list[str]:
    """Return what may decide the undecided cases, as far as the rule computed it."""
    undecided = [found for found in findings if found.verdict.outcome is Outcome.UNDECIDED]
    waiting = [found for found in undecided if is_waiting(found)]
    by_sessions = [found for found in undecided if found.verdict.more_sessions]
    by_launches = [found for found in undecided if found.verdict.more_launches]
    lines = []
    if waiting:
        assumed = max(found.verdict.assumed_sd or 0.0 for found in waiting)
        lines.append(
            f"{_cases(waiting)}: how much sessions differ is unknown before {LEAST_SESSIONS} are"
            f" stored; {short_percent(assumed)} is assumed"
        )
    if by_sessions:
        lines.append(f"{_cases(by_sessions)}: further stored sessions may decide")
    if by_launches:
        lines.append(f"{_cases(by_launches)}: more launches may decide (a larger --ddp-launches)")
    return lines


def _cases(findings: Sequence[Finding]) -> str:
    return counted(len({found.case_id for found in findings}), "case")
