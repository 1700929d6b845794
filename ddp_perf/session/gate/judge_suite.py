"""The judgement of a suite: a finding for each case and gated metric, and the rule's inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ddp_perf.baselines.save import is_comparable, own_structure, work_differences
from ddp_perf.baselines.work import StoredWork
from ddp_perf.core.baseline import (
    CONTROL,
    REFERENCE_SESSIONS,
    Baseline,
    CaseBaseline,
    Session,
)
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment, OutlierHost
from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import (
    EXACT,
    LOSS,
    MISSING_READINGS,
    STRUCTURE,
    gated_metrics,
    metric_spec,
)
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.session.gate.comparability import (
    ClockChange,
    MachineHistory,
    changes,
    compared_with_hosts,
    controls,
    find_outlier_host,
    other_machine,
    with_clocks,
)
from ddp_perf.session.gate.disturbance import with_disturbance
from ddp_perf.session.gate.exact import (
    compared_flops,
    is_finite,
    judge_loss,
    judge_structure,
    loss_tolerance,
    with_acknowledged_value,
    with_flops,
    with_missing,
)
from ddp_perf.session.gate.nodes import judge_each_node, name_nodes, over_nodes, slow_since
from ddp_perf.session.gate.published import describe_published
from ddp_perf.session.gate.targets import judge_targets, utilisation_of
from ddp_perf.stats.rule.comparison import NOT_SAMPLED, JudgeOptions, Sampling
from ddp_perf.stats.rule.judge import judge_figures
from ddp_perf.stats.rule.two_sides import judge_sides
from ddp_perf.stats.summary import as_session


class Remedies(msgspec.Struct, frozen=True, kw_only=True):
    """The remedies for what cannot be compared with the baseline, and for another structure."""

    no_such_case: str = "--save-baseline records it"
    no_such_figure: str = "--save-baseline adds it"
    other_work: str = '--save-baseline=accept --ddp-reason "…" replaces it'
    other_structure: str = (
        '--save-baseline=accept --ddp-reason "…" takes it over, if it is intended'  # "": none
    )
    other_machine: str = (
        '--save-baseline=accept --ddp-reason "…" replaces it, -o ddp_baselines=DIR keeps both'
    )


class JudgingContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context in which all cases of a session are judged: baseline, environment and level."""

    baseline: Baseline
    baseline_path: str
    structures: Mapping[str, StoredWork] = {}  # of the suite, on any machine
    remedies: Remedies = Remedies()
    environment: Environment  # of this session
    machine: GpuMachine | None = None  # its GPUs; None: the CPU tier, or a comparison
    alpha: float  # significance level of each verdict
    looks: Mapping[str, tuple[int, ...]] = {}  # launches at each planned look, by case id
    elsewhere: Mapping[str, str] = {}  # by case id: another accelerator with a baseline of the case
    # Of a comparison: the judged sessions by case id. The baseline is then its older side.
    compared: Mapping[str, tuple[Session, ...]] | None = None
    reported: Collection[str] = ()  # ids of cases that rotate: their times gate nothing
    # Of this session's nodes that were not measured before, by case id and metric.
    sampling: Mapping[str, Mapping[str, Sampling]] = {}


def judge_suite(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    context: JudgingContext,
) -> list[Finding]:
    """Judge all cases that were measured, and their nodes if they were measured one by one.

    A case that compares with the baseline is judged metric by metric. Then each of `COMPARED` sees
    its findings; `CONCLUDING` follows at the end of the session.
    """
    seen = context.baseline, context.environment
    findings = judge_each_node(measurements, summaries, *seen, alpha=context.alpha)
    of_nodes = {found.case_id: found for found in findings}
    slow = {case_id: slow_since(found, "") for case_id, found in of_nodes.items()}
    sessions, context = _over_nodes(summaries, context, slow)
    history = MachineHistory(context.baseline, context.environment, context.compared)
    outlier = find_outlier_host(measurements, summaries, context.baseline, context.environment)
    for case_id, measurement in measurements.items():
        if not measurement.is_complete:
            continue
        if (refused := _why_refused(measurement, context)) is not None:
            findings += _refused(measurement, *refused, context)
            continue
        judged = list(_judge_case(measurement, sessions[case_id], context, history))
        case = SeenCase(
            measurement=measurement,
            measurements=measurements,
            by_metric={finding.metric: finding for finding in judged},
            clocks=history.clock_changes(case_id, sessions[case_id]),
            history=history,
            outlier=outlier,
            of_nodes=of_nodes.get(case_id),
        )
        for stage in COMPARED.values():
            judged = [stage(finding, case) for finding in judged]
        findings += judged
    if context.compared is None:  # a comparison is of two states of the code, not with a target
        key = context.environment.accelerator_key
        tables = context.baseline.published
        findings += judge_targets(
            measurements, summaries, key, context.looks, tables, context.machine
        )
    return [with_acknowledged_value(one, measurements, context.baseline) for one in findings]


class SeenCase(NamedTuple):
    """All that a stage of the gate may ask of a case that compares with the baseline."""

    measurement: Measurement
    measurements: Mapping[str, Measurement]  # of all cases of the session
    by_metric: Mapping[str, Finding]  # as the rule left them
    clocks: Sequence[ClockChange]  # since the baseline
    history: MachineHistory
    outlier: OutlierHost | None
    of_nodes: Finding | None  # on its nodes, if they were measured one by one


def _only_if_slower_itself(finding: Finding, case: SeenCase) -> Finding:
    """Lower a bad scaling verdict if only the one-rank step changed: it got faster."""
    numerator = None if finding.metric in EXACT else metric_spec(finding.metric).numerator
    step, verdict = case.by_metric.get(numerator or ""), finding.verdict
    if step is None or not verdict.outcome.is_slower:
        return finding
    if step.verdict.ratio is None or step.verdict.ratio > 1:
        return finding
    return finding.noted(
        NoteKind.NUMERATOR,
        "the one-rank step got faster",
        outcome=Outcome.PASS if step.verdict.outcome.is_good else Outcome.UNDECIDED,
        more_launches=verdict.more_launches,
        likely_launches=verdict.likely_launches,
    )


def _with_hosts(finding: Finding, case: SeenCase) -> Finding:
    is_of_hosts = case.history.compares_hosts(finding)
    return compared_with_hosts(finding, case.outlier) if is_of_hosts else finding


def _with_nodes(finding: Finding, case: SeenCase) -> Finding:
    nodes = case.of_nodes
    return finding if nodes is None else name_nodes(finding, nodes, case.measurement)


# What happens to a finding after the rule, in this order: each stage sees what those before it
# made of it.
COMPARED: dict[str, Callable[[Finding, SeenCase], Finding]] = {
    "a ratio is worse only if its numerator is": _only_if_slower_itself,
    "a host that does not fit its pool is INVALID": _with_hosts,
    "nodes that were measured one by one are named": _with_nodes,
    "a slower clock excuses what it explains": lambda one, case: with_clocks(
        one, case.measurement, case.clocks
    ),
    "disturbed launches decide nothing": lambda one, case: with_disturbance(one, case.measurements),
}


def _why_refused(measurement: Measurement, context: JudgingContext) -> tuple[Outcome, str] | None:
    """Return why nothing of the case compares with the baseline, or None if something does."""
    case, remedies = measurement.case, context.remedies
    utilisation = utilisation_of(measurement, context.environment.accelerator_key)
    if utilisation is not None and utilisation.is_impossible:
        return Outcome.INVALID, f"a measurement error: {utilisation}"
    path, stored = context.baseline_path, context.baseline.cases.get(case.id)
    if stored is None and (other := context.elsewhere.get(case.id)) is not None:
        what = f"the baseline is of {other}, this is {context.baseline.accelerator}"
        return Outcome.INCOMPARABLE, f"{what}; {remedies.no_such_case}"
    if stored is None:
        return Outcome.NO_BASELINE, f"{path} has no such case; {remedies.no_such_case}"
    if changed := work_differences(stored, case):
        reason = f"{path} contains other work: {', '.join(changed)}; {remedies.other_work}"
        return Outcome.INCOMPARABLE, reason
    if other := other_machine(
        stored, context.environment, world_size=case.run_ranks, nodes=case.nodes
    ):
        return Outcome.INCOMPARABLE, f"{path}: {other}; {remedies.other_machine}"
    return None


def _over_nodes(
    summaries: Mapping[str, Sequence[LaunchSummary]],
    context: JudgingContext,
    slow: Mapping[str, dict[str, str]],
) -> tuple[dict[str, Session], JudgingContext]:
    """Return this session of each case, and the context, with sessions over their nodes."""
    now = {
        case_id: msgspec.structs.replace(
            as_session(rows, context.environment, date=""), slow_nodes=slow.get(case_id, {})
        )
        for case_id, rows in summaries.items()
    }
    of_case = context.compared or {case_id: (session,) for case_id, session in now.items()}
    # Both sides of a comparison are over the same nodes, which the newer one shows to be healthy.
    left_out = slow if context.compared is not None else {}
    baseline, judged, sampling = over_nodes(context.baseline, of_case, left_out=left_out)
    if context.compared is not None:
        return now, msgspec.structs.replace(context, baseline=baseline, compared=judged)
    sessions = {case_id: one for case_id, (one,) in judged.items()}
    return sessions, msgspec.structs.replace(context, baseline=baseline, sampling=sampling)


def _with_published(finding: Finding, case: Case, context: JudgingContext) -> Finding:
    """Return the finding with what was published of the case and asserts nothing."""
    line = describe_published(context.baseline.published, finding.metric, case)
    return msgspec.structs.replace(finding, published=line)


def _refused(
    measurement: Measurement, outcome: Outcome, reason: str, context: JudgingContext
) -> Iterable[Finding]:
    case, verdict = measurement.case, Verdict(outcome=outcome, reason=reason)
    for metric in gated_metrics(case):
        found = Finding(case_id=case.id, metric=metric, verdict=verdict)
        yield found if case.id in context.baseline.cases else _with_published(found, case, context)
    if case.trains:
        yield _judge_structure(measurement, context)
        yield from _judge_loss(measurement, context, otherwise=verdict)


def _judge_structure(measurement: Measurement, context: JudgingContext) -> Finding:
    """Judge the structure, which needs neither this machine's sessions nor an undisturbed one."""
    case, launches, torch = measurement.case, measurement.launches, context.environment.torch
    stored, remedies = context.baseline.cases.get(case.id), context.remedies
    own = own_structure(case, stored)
    verdict = with_missing(judge_structure(case, launches, own, context.structures), launches)
    verdict = with_flops(verdict, launches, case, stored, torch)
    remedy = {
        Outcome.NO_BASELINE: remedies.no_such_case,
        Outcome.INCOMPARABLE: remedies.other_work,
        Outcome.PASS: "",
        Outcome.INVALID: "",
    }.get(verdict.outcome, remedies.other_structure)
    flops, count = compared_flops(launches, case, stored, torch), len(launches)
    found = Finding(case_id=case.id, metric=STRUCTURE, verdict=verdict, launches=count, flops=flops)
    return found.noted(NoteKind.REMEDY, remedy) if remedy else found


def _judge_loss(
    measurement: Measurement, context: JudgingContext, otherwise: Verdict | None = None
) -> Iterable[Finding]:
    """Judge the losses, if the case is judged by them.

    ``otherwise`` is the verdict on the figures if nothing of the case can be compared.
    """
    case, launches, remedies = measurement.case, measurement.launches, context.remedies
    stored = context.baseline.cases.get(case.id)
    own = stored.losses if stored is not None and is_comparable(stored, case) else {}
    if (tolerance := loss_tolerance(case, launches)) is None:
        return
    verdict, remedy = judge_loss(launches, own, tolerance=tolerance), ""
    if verdict.outcome is Outcome.NO_BASELINE and otherwise is not None:
        verdict = otherwise
    elif verdict.outcome is Outcome.NO_BASELINE:
        remedy = remedies.no_such_figure
    elif verdict.outcome is Outcome.REGRESSION and is_finite(launches):
        remedy = remedies.other_structure
    first = stored.sessions[0] if stored is not None and own else None
    found = Finding(
        case_id=case.id,
        metric=LOSS,
        verdict=verdict,
        launches=len(launches),
        baseline_date=first.date if first else None,
        changed=tuple(changes(first.environment, context.environment)) if first else (),
        tolerance=tolerance,
    )
    yield found.noted(NoteKind.REMEDY, remedy) if remedy else found


def _judge_case(
    measurement: Measurement, session: Session, context: JudgingContext, history: MachineHistory
) -> Iterator[Finding]:
    case = measurement.case
    for metric in gated_metrics(case):
        yield _with_published(_judge_metric(case, metric, session, context, history), case, context)
    if case.trains:
        yield _judge_structure(measurement, context)
        yield from _judge_loss(measurement, context)


def _judge_metric(
    case: Case, metric: str, session: Session, context: JudgingContext, history: MachineHistory
) -> Finding:
    stored, verdict = history.of(case.id, metric), _verdict(case, metric, session, context, history)
    current, first = session.values(metric), next(iter(stored.at_level), None)
    return Finding(
        case_id=case.id,
        metric=metric,
        verdict=verdict,
        launches=len(current),
        sessions=len(stored.at_level),
        value=statistics.median(current) if current else None,
        baseline=stored.level,
        baseline_date=first.date if first else None,
        changed=tuple(changes(first.environment, context.environment)) if first else (),
        tolerance=tolerance_of(case, metric),
        off_level=tuple(stored.informing[place].date for place in verdict.off_level or ()),
        drift=_drift(context.baseline.cases[case.id], metric, current),
    )


def _verdict(
    case: Case, metric: str, session: Session, context: JudgingContext, history: MachineHistory
) -> Verdict:
    stored = history.of(case.id, metric)
    if not session.values(metric) and (missing := MISSING_READINGS.get(metric)) is not None:
        return Verdict(outcome=Outcome.INVALID, reason=f"no launch has a reading: {missing}")
    if not stored.at_level:
        remedy = context.remedies.no_such_figure
        reason = f"the baseline of this case has no {metric}; {remedy}"
        return Verdict(outcome=Outcome.NO_BASELINE, reason=reason)
    tolerance, prior = tolerance_of(case, metric), history.prior(case, metric)
    if context.compared is not None:
        return judge_sides(
            [one.values(metric) for one in context.compared[case.id] if one.values(metric)],
            [one.values(metric) for one in stored.at_level],
            tolerance=tolerance,
            alpha=context.alpha,
            prior=prior,
            same_machine=not stored.of_hosts,
        )
    options = JudgeOptions(
        tolerance=tolerance,
        alpha=context.alpha,
        prior=prior,
        looks=context.looks.get(case.id, ()),
        session_levels=stored.levels,
        sampling=context.sampling.get(case.id, {}).get(metric, NOT_SAMPLED),
    )
    return judge_session(metric, session, stored.informing, options)


def _drift(stored: CaseBaseline, metric: str, current: Sequence[float]) -> float | None:
    """Return this session ÷ the first one ever saved, or None if the level was never replaced."""
    first = stored.first.get(metric)
    if not stored.log or first is None or not current:
        return None
    return statistics.median(current) / first


def judge_session(
    metric: str, session: Session, before: Sequence[Session], options: JudgeOptions
) -> Verdict:
    """Judge a metric by ``before``, the stored sessions that inform it, oldest first."""
    control = controls(before, metric, session.environment)
    return judge_figures(
        session.values(metric),
        [session.values(metric) for session in before],
        msgspec.structs.replace(options, reference=REFERENCE_SESSIONS),
        control=session.values(CONTROL) if control else None,
        baseline_control=control,
    )


def tolerance_of(case: Case, metric: str) -> float:
    """Return the tolerance of a gated metric."""
    tolerance = case.tolerances.of(metric)
    assert tolerance is not None  # it is gated
    return tolerance
