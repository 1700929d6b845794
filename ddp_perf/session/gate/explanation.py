"""The explanation of slower cases: their launches are compared with the stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_perf.core.baseline import CONTROL, TYPICAL_STEP, Baseline, CaseBaseline, Session
from ddp_perf.core.decomposition import COMMUNICATION, COUNTS, LAG, TERMS, Decomposition
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchResult, first_structure
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import STEP_TIME, is_explained
from ddp_perf.core.verdict import Explanation, Outcome
from ddp_perf.diagnose.causes import Evidence, find_causes, grown_by_count
from ddp_perf.session.gate.comparability import as_conditions, changes, clock_changes, same_software
from ddp_perf.session.gate.disturbance import prevailing_disturbance
from ddp_perf.session.gate.exact import structure_changes
from ddp_perf.session.gate.nodes import slowest_node
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.step_change import Row, attribute
from ddp_perf.stats.step_decomposition import typical_step
from ddp_perf.stats.summary import as_session, summarise_all

_BESIDE = (COMMUNICATION, LAG, *COUNTS, CONTROL)


def slower_cases(findings: Iterable[Finding]) -> list[str]:
    """Return the ids of the cases with a REGRESSION that the terms of a step explain."""
    slower = [
        finding.case_id
        for finding in findings
        if is_explained(finding.metric) and finding.verdict.outcome is Outcome.REGRESSION
    ]
    return list(dict.fromkeys(slower))


def explain_slower_cases(result: SuiteResult, baseline: Baseline) -> dict[str, Explanation]:
    """Explain each slower case by the judged launches, where there are terms to compare with."""
    explanations = {
        case_id: explain_case(
            result.measurements[case_id], baseline.cases[case_id], result.environment
        )
        for case_id in slower_cases(result.findings)
    }
    return {case_id: why for case_id, why in explanations.items() if why is not None}


def explain_case(
    measurement: Measurement,
    stored: CaseBaseline,
    environment: Environment,
    *,
    in_alternation: bool = False,
) -> Explanation | None:
    """Explain a case, or return None if the stored sessions or these launches have no terms.

    ``in_alternation``: the stored session was measured in alternation with these launches, so that
    the machine, which was the same, is no cause.
    """
    case, launches = measurement.case, measurement.launches
    summaries = summarise_all(launches, samples_per_step=case.samples_per_step, singles=())
    session, sessions = as_session(summaries, environment, date=""), _with_terms(stored)
    now = _rows(session)
    structure, before = first_structure(launches), stored.structure
    if structure is None:
        return None
    attribution = attribute(
        now,
        [_rows(session) for session in sessions],
        beside=_BESIDE,
        known=grown_by_count(before, structure),
        in_alternation=in_alternation,
    )
    if attribution is None:
        return None
    step = typical_step(summaries)
    assert step is not None  # the terms above come from these launches
    beside = attribution.beside
    unchanged = all(same_software(session.environment, environment) for session in sessions)
    evidence = Evidence(
        structure_before=before,
        structure_after=structure,
        structure_changes=tuple(structure_changes(before, structure)) if before else (),
        communication=beside.get(COMMUNICATION),
        lag=beside.get(LAG),
        host_reads=beside.get("host_reads"),
        allocator_retries=beside.get("allocator_retries"),
        control=beside.get(CONTROL) if unchanged and not in_alternation else None,
        on_gpu=case.tier == "gpu",
        sees_communication=step.sees_communication,
        slowest_rank=step.slowest_rank,
        slowest_lag_s=step.lag_s,
        lagging=step.lagging_ranks,
        slowest_share=step.slowest_share,
        slowest_where=_where(launches, step.slowest_rank, environment),
        slow_node=_slow_node(launches, summaries, step),
        changed=(
            *changes(sessions[0].environment, environment),
            *as_conditions(clock_changes(session, sessions)),
        ),
        disturbance=None if in_alternation else _disturbance(measurement),
    )
    return find_causes(case.id, attribution, evidence, len(now))


def _disturbance(measurement: Measurement) -> str | None:
    return prevailing_disturbance(measurement.case.id, {measurement.case.id: measurement})


def _slow_node(
    launches: Sequence[LaunchResult], summaries: Sequence[LaunchSummary], step: Decomposition
) -> str | None:
    """Return the node that works longer than the others, in words, if all of its ranks lag."""
    node = slowest_node(launches, summaries)
    if node is None or not node.is_slower or not set(node.ranks) <= set(step.lagging_ranks):
        return None
    return str(node)


def has_terms(stored: CaseBaseline) -> bool:
    """Return whether the stored sessions have terms to compare launches with."""
    return bool(_with_terms(stored))


def _with_terms(stored: CaseBaseline) -> tuple[Session, ...]:
    """Return the reference sessions that have terms."""
    return stored.history(STEP_TIME.name).reference_of_terms


def _rows(session: Session) -> list[Row]:
    """Return the terms, the timed step and the control of each launch that has all of them."""
    return [
        {**terms, "step": values[TYPICAL_STEP], CONTROL: values[CONTROL]}
        for values, terms in zip(session.launches, session.terms, strict=False)
        if terms.keys() >= set(TERMS)
    ]


def _where(launches: Sequence[LaunchResult], rank: int, environment: Environment) -> str:
    launch = launches[-1]
    place = launch.ranks[rank].placement
    where = place.node_name if launch.has_several_nodes else environment.host
    return f"{place.device}, {place.device_id}, on {where}"
