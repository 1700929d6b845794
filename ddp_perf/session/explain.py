"""Why the cases of a suite got slower: their launches against the stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddp_perf.core.baseline import CONTROL, CaseBaseline, Session
from ddp_perf.core.decomposition import COMMUNICATION
from ddp_perf.core.environment import Environment
from ddp_perf.core.explanation import Explanation
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import STEP_TIME, is_explained
from ddp_perf.core.result import LaunchResult
from ddp_perf.core.verdict import Outcome
from ddp_perf.diagnose.causes import Evidence, explain
from ddp_perf.session.comparability import changes
from ddp_perf.session.conditions import find_disturbance
from ddp_perf.session.structure import structure_changes
from ddp_perf.session.summaries import as_session
from ddp_perf.stats.attribution import Row, attribute, change_of
from ddp_perf.stats.decomposition import typical
from ddp_perf.stats.summary import summarise_all


def slower_cases(findings: Iterable[Finding]) -> list[str]:
    """Ids of the cases whose step certainly takes longer."""
    slower = [
        finding.case_id
        for finding in findings
        if is_explained(finding.metric) and finding.verdict.outcome is Outcome.REGRESSION
    ]
    return list(dict.fromkeys(slower))


def explain_case(
    measurement: Measurement, stored: CaseBaseline, environment: Environment
) -> Explanation | None:
    """None where the stored nights, or these launches, hold no terms."""
    case, launches = measurement.case, measurement.launches
    summaries = summarise_all(launches, samples_per_step=case.samples_per_step, singles=())
    now = _rows(as_session(summaries, environment, date=""))
    nights = [_rows(night) for night in stored.sessions]
    attribution = attribute(now, nights)
    if attribution is None:
        return None
    structure = launches[0].ranks[0].structure
    assert structure is not None  # as all that have terms
    step = typical([row.decomposition for row in summaries if row.decomposition is not None])
    assert step is not None  # the terms above are of these
    before = stored.structure
    disturbance = find_disturbance(case.id, {case.id: measurement}, with_single=False)
    evidence = Evidence(
        collectives_before=before.collectives if before else None,
        collectives_after=structure.collectives,
        structure_changes=tuple(structure_changes(before, structure)) if before else (),
        communication=change_of(COMMUNICATION, now, nights),
        host_reads=change_of("host_reads", now, nights),
        allocator_retries=change_of("allocator_retries", now, nights),
        control=change_of(CONTROL, now, nights),
        ranks=case.world_size,
        slowest_rank=step.slowest_rank,
        slowest_share=step.slowest_share,
        slowest_where=_where(launches, step.slowest_rank, environment),
        changed=tuple(changes(stored.sessions[0].environment, environment)),
        disturbance=str(disturbance) if disturbance else None,
    )
    return explain(case.id, attribution, evidence, len(now))


def _rows(session: Session) -> list[Row]:
    """A launch's terms, with its timed step and its control. Empty without terms of each."""
    if len(session.terms) != len(session.launches):
        return []
    return [
        {**terms, "step": values[STEP_TIME.name], CONTROL: values[CONTROL]}
        for values, terms in zip(session.launches, session.terms, strict=True)
    ]


def _where(launches: Sequence[LaunchResult], rank: int, environment: Environment) -> str:
    place = launches[-1].ranks[rank].placement
    return f"{place.device}, {place.device_id}, on {environment.host}"
