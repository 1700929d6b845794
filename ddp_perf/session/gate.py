"""Measurements against the baseline: one finding per case and gated metric."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import differences
from ddp_perf.core.baseline import CONTROL, REFERENCE_SESSIONS, Baseline, CaseBaseline
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import EFFICIENCY, METRICS, STEP_TIME, STRUCTURE
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.session.structure import compare_structure
from ddp_perf.stats.judge import judge_launches
from ddp_perf.stats.summary import summarise_all


def summaries_of(measurements: Mapping[str, Measurement]) -> dict[str, list[LaunchSummary]]:
    """Every launch in figures, by case id; scaling where the one-rank leg was measured too."""
    summaries = {}
    for case_id, measurement in measurements.items():
        case = measurement.case
        single = measurements.get(case.single) if case.single else None
        summaries[case_id] = summarise_all(
            measurement.launches,
            samples_per_step=case.samples_per_step,
            singles=single.launches if single else (),
        )
    return summaries


def gated_metrics(case: Case) -> list[str]:
    """The metrics of a case that its tolerances gate by statistics."""
    return [
        metric.name
        for metric in METRICS
        if case.tolerances.of(metric.name) is not None
        and (metric is not EFFICIENCY or case.single is not None)
    ]


def judge_suite(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    baseline: Baseline,
    *,
    alpha: float,
    baseline_path: str,
) -> list[Finding]:
    """Findings of all cases that were measured without a failed launch.

    ``alpha`` is the false-alarm rate of each single verdict.
    """
    findings: list[Finding] = []
    for case_id, measurement in measurements.items():
        if measurement.failures or not measurement.launches:
            continue
        stored = baseline.cases.get(case_id)
        if stored is None:
            reason = f"{baseline_path} has no such case; --save-baseline records it"
            findings += _refused(measurement.case, Outcome.NO_BASELINE, reason)
        elif changed := differences(stored, measurement.case):
            reason = (
                f"{baseline_path} holds other work: {', '.join(changed)};"
                ' --save-baseline=accept --reason "…" replaces it'
            )
            findings += _refused(measurement.case, Outcome.INCOMPARABLE, reason)
        else:
            findings += _judge_case(measurement, summaries[case_id], stored, alpha)
    return findings


def _refused(case: Case, outcome: Outcome, reason: str) -> Iterable[Finding]:
    verdict = Verdict(outcome=outcome, reason=reason)
    for metric in [*gated_metrics(case), STRUCTURE]:
        yield Finding(case_id=case.id, metric=metric, verdict=verdict)


def _judge_case(
    measurement: Measurement,
    summaries: Sequence[LaunchSummary],
    stored: CaseBaseline,
    alpha: float,
) -> Iterable[Finding]:
    step_time: Finding | None = None
    for metric in gated_metrics(measurement.case):
        finding = _judge_metric(measurement.case, metric, summaries, stored, alpha)
        if metric == STEP_TIME.name:
            step_time = finding
        elif metric == EFFICIENCY.name and step_time is not None:
            finding = _only_if_slower_itself(finding, step_time)
        yield finding
    yield Finding(
        case_id=measurement.case.id,
        metric=STRUCTURE,
        verdict=compare_structure(measurement.launches, stored.structure),
    )


def _judge_metric(
    case: Case,
    metric: str,
    summaries: Sequence[LaunchSummary],
    stored: CaseBaseline,
    alpha: float,
) -> Finding:
    tolerance = case.tolerances.of(metric)
    assert tolerance is not None  # it is gated
    launches = [summary for summary in summaries if metric in summary.values]
    sessions = [session for session in stored.sessions if session.values(metric)]
    current = [summary.values[metric] for summary in launches]
    reference = sessions[:REFERENCE_SESSIONS]
    verdict = judge_launches(
        [[value] for value in current],
        [[[value] for value in session.values(metric)] for session in sessions],
        tolerance=tolerance,
        alpha=alpha,
        control=[[summary.control_s] for summary in launches],
        baseline_control=[[[value] for value in session.values(CONTROL)] for session in sessions],
        reference=len(reference) or None,
    )
    levels = [statistics.median(session.values(metric)) for session in reference]
    return Finding(
        case_id=case.id,
        metric=metric,
        verdict=verdict,
        value=statistics.median(current) if current else None,
        baseline=statistics.median(levels) if levels else None,
        baseline_date=reference[0].date if reference else None,
    )


def _only_if_slower_itself(efficiency: Finding, step_time: Finding) -> Finding:
    """Scaling that got worse because one rank alone got faster is no regression."""
    bad = (Outcome.REGRESSION, Outcome.SUSPECT)
    good = (Outcome.PASS, Outcome.IMPROVEMENT)
    ratio = step_time.verdict.ratio
    if efficiency.verdict.outcome not in bad or ratio is None or ratio > 1:
        return efficiency
    outcome = Outcome.PASS if step_time.verdict.outcome in good else Outcome.INCONCLUSIVE
    reason = (
        f"{efficiency.verdict.reason}; but the step of all ranks is not slower:"
        " the one-rank leg got faster"
    )
    verdict = msgspec.structs.replace(efficiency.verdict, outcome=outcome, reason=reason)
    return msgspec.structs.replace(efficiency, verdict=verdict)
