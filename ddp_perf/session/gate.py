"""Measurements against the baseline: one finding per case and gated metric."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ddp_perf.baselines.save import differences
from ddp_perf.core.baseline import (
    CONTROL,
    REFERENCE_SESSIONS,
    Baseline,
    CaseBaseline,
    Session,
)
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import EFFICIENCY, STEP_TIME, STRUCTURE, gated_metrics, is_controlled
from ddp_perf.core.verdict import NightPrior, Outcome, Verdict
from ddp_perf.session.conditions import qualified
from ddp_perf.session.structure import compare_structure
from ddp_perf.stats.judge import confirm, judge_launches
from ddp_perf.stats.machine_prior import CaseNights, machine_prior
from ddp_perf.stats.summary import summarise_all

_LEAST_NIGHTS_FOR_CONTROL = 3
_SOFTWARE = ("torch", "cuda", "cudnn", "nccl", "driver", "blas")


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


class Remedies(msgspec.Struct, frozen=True, kw_only=True):
    """What a person can do about a case that the bar holds no figures for."""

    no_such_case: str = "--save-baseline records it"
    other_work: str = '--save-baseline=accept --reason "…" replaces it'


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is judged against, the same for all of its cases."""

    baseline: Baseline
    baseline_path: str
    remedies: Remedies = Remedies()
    environment: Environment  # of this session
    alpha: float  # false-alarm rate of each single verdict


def judge_suite(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    bar: Bar,
) -> list[Finding]:
    """Findings of all cases that were measured without a failed launch."""
    findings: list[Finding] = []
    priors: dict[str, NightPrior | None] = {}
    for case_id, measurement in measurements.items():
        if measurement.failures or not measurement.launches:
            continue
        case, stored = measurement.case, bar.baseline.cases.get(case_id)
        if stored is None:
            reason = f"{bar.baseline_path} has no such case; {bar.remedies.no_such_case}"
            findings += _refused(case, Outcome.NO_BASELINE, reason)
        elif changed := differences(stored, case):
            reason = (
                f"{bar.baseline_path} holds other work: {', '.join(changed)};"
                f" {bar.remedies.other_work}"
            )
            findings += _refused(case, Outcome.INCOMPARABLE, reason)
        else:
            for metric in gated_metrics(case):
                if metric not in priors:
                    priors[metric] = _prior(bar, metric, _tolerance(case, metric))
            judged = _judge_case(measurement, summaries[case_id], stored, bar, priors)
            findings += [qualified(finding, measurements) for finding in judged]
    return findings


def _refused(case: Case, outcome: Outcome, reason: str) -> Iterable[Finding]:
    verdict = Verdict(outcome=outcome, reason=reason)
    for metric in [*gated_metrics(case), STRUCTURE]:
        yield Finding(case_id=case.id, metric=metric, verdict=verdict)


def _judge_case(
    measurement: Measurement,
    summaries: Sequence[LaunchSummary],
    stored: CaseBaseline,
    bar: Bar,
    priors: Mapping[str, NightPrior | None],
) -> Iterable[Finding]:
    case = measurement.case
    session = as_session(summaries, bar.environment, date="")
    step_time: Finding | None = None
    for metric in gated_metrics(case):
        finding = _judge_metric(case, metric, session, stored, bar.alpha, priors[metric])
        if metric == STEP_TIME.name:
            step_time = finding
        elif metric == EFFICIENCY.name and step_time is not None:
            finding = _only_if_slower_itself(finding, step_time)
        yield finding
    yield Finding(
        case_id=case.id,
        metric=STRUCTURE,
        verdict=compare_structure(measurement.launches, stored.structure),
    )


def _judge_metric(
    case: Case,
    metric: str,
    session: Session,
    stored: CaseBaseline,
    alpha: float,
    prior: NightPrior | None,
) -> Finding:
    nights = _nights(stored, metric)

    def judge(current: Session, before: Sequence[Session]) -> Verdict:
        control = _controls(before, metric, current.environment)
        return judge_launches(
            _one_value_each(current.values(metric)),
            [_one_value_each(night.values(metric)) for night in before],
            tolerance=_tolerance(case, metric),
            alpha=alpha,
            control=_one_value_each(current.values(CONTROL)) if control else None,
            baseline_control=control,
            reference=REFERENCE_SESSIONS,
            prior=prior,
        )

    if not nights:
        reason = f"the baseline of this case holds no {metric}; --save-baseline=append adds it"
        verdict = Verdict(outcome=Outcome.NO_BASELINE, reason=reason)
    else:
        verdict = judge(session, nights)
    if verdict.outcome is Outcome.SUSPECT and len(nights) > 1:
        verdict = confirm(verdict, judge(nights[-1], nights[:-1]).outcome)
    levels = [statistics.median(night.values(metric)) for night in nights[:REFERENCE_SESSIONS]]
    current = session.values(metric)
    return Finding(
        case_id=case.id,
        metric=metric,
        verdict=verdict,
        value=statistics.median(current) if current else None,
        baseline=statistics.median(levels) if levels else None,
        baseline_date=nights[0].date if nights else None,
        drift=_drift(stored, metric, current),
    )


def _drift(stored: CaseBaseline, metric: str, current: Sequence[float]) -> float | None:
    """Only where the level was moved since: else it is the ratio that was judged."""
    first = stored.first.get(metric)
    if not stored.log or first is None or not current:
        return None
    return statistics.median(current) / first


def _prior(bar: Bar, metric: str, tolerance: float) -> NightPrior | None:
    """What all stored cases of this machine say of how its nights differ."""
    stored = [(case, _nights(case, metric)) for case in bar.baseline.cases.values()]
    return machine_prior(
        [
            CaseNights(
                sessions=[_one_value_each(night.values(metric)) for night in nights],
                control=_controls(nights, metric, bar.environment),
                tolerance=tolerance,
            )
            for case, nights in stored
            if case.source == "measured"
        ]
    )


def _controls(
    nights: Sequence[Session], metric: str, now: Environment
) -> list[list[list[float]]] | None:
    """The control of each night; None where it may not speak for the machine: an upgrade that
    slows a matrix product must not be excused as "the machine moved". Nor before there are
    nights enough to show whether the case follows it: until then it would add noise alone.
    """
    if not is_controlled(metric) or len(nights) < _LEAST_NIGHTS_FOR_CONTROL:
        return None
    for night in nights:
        if any(getattr(night.environment, name) != getattr(now, name) for name in _SOFTWARE):
            return None
    return [_one_value_each(night.values(CONTROL)) for night in nights]


def _nights(stored: CaseBaseline, metric: str) -> list[Session]:
    return [night for night in stored.sessions if night.values(metric)]


def _tolerance(case: Case, metric: str) -> float:
    tolerance = case.tolerances.of(metric)
    assert tolerance is not None  # it is gated
    return tolerance


def as_session(summaries: Sequence[LaunchSummary], environment: Environment, date: str) -> Session:
    """A case's launches of this session, in the form that baselines are stored in."""
    figures = [{**summary.values, CONTROL: summary.control_s} for summary in summaries]
    launches = tuple({name: _rounded(value) for name, value in row.items()} for row in figures)
    return Session(date=date, environment=environment, launches=launches)


def _rounded(value: float) -> float:
    """To 7 significant digits: more is noise, and would make a baseline's diff unreadable."""
    return float(f"{value:.7g}")


def _one_value_each(values: Sequence[float]) -> list[list[float]]:
    return [[value] for value in values]


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
