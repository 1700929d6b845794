"""A measured session is judged again: by another baseline, or with launches on another node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from ddp_perf.baselines.work import StoredWork
from ddp_perf.core.baseline import Baseline
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import gated_metrics
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.gate.comparability import find_outlier_host
from ddp_perf.session.gate.exact import with_acknowledgement
from ddp_perf.session.gate.judge_suite import JudgingContext, Remedies, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.gate.persistence import (
    merge_findings,
    report_only,
    rules_out,
    with_persistence,
    with_unmeasured,
)
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.summary import summaries_of

# Launches of a slower case on another node, which decide before the code is blamed.
#
# They are judged by the same baseline. If they rule out the slow-down, the node is to blame, as far
# as the baseline shows how nodes differ: else the other node may be a faster one.


def slower_by_figures(measurement: Measurement, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by which a case of one node is slower, as another node may show."""
    case = measurement.case
    if case.nodes > 1 or measurement.nodes:
        return []
    gated = gated_metrics(case)
    return [
        found
        for found in findings
        if found.case_id == case.id
        and found.metric in gated
        and found.verdict.outcome is Outcome.REGRESSION
        and not found.is_expected
    ]


def compare_other_node(
    findings: Iterable[Finding],
    elsewhere: Mapping[str, Measurement],
    context: JudgingContext,
    *,
    here: str | None,
) -> tuple[Finding, ...]:
    """Return the findings with what the launches on another node show of each REGRESSION.

    ``elsewhere`` has these launches by case id, those of the one-rank case among them, and ``here``
    is the node of the other launches.
    """
    if not elsewhere:
        return tuple(findings)
    known = {case_id for case_id in elsewhere if _shows_nodes(context.baseline, case_id)}
    launched = {
        case_id: one if case_id in known else _of_any_node(one)
        for case_id, one in elsewhere.items()
    }
    context = msgspec.structs.replace(context, looks={})
    judged = judge_suite(launched, summaries_of(launched), context)
    there = {(found.case_id, found.metric): found for found in judged}
    return tuple(
        _compared(
            found,
            there[found.case_id, found.metric],
            (here, elsewhere[found.case_id].launches[0].node),
            is_known=found.case_id in known,
        )
        if found.verdict.outcome is Outcome.REGRESSION
        and not found.is_expected
        and (found.case_id, found.metric) in there
        and found.metric in gated_metrics(elsewhere[found.case_id].case)
        else found
        for found in findings
    )


def _shows_nodes(baseline: Baseline, case_id: str) -> bool:
    """Return whether the baseline shows how nodes differ: a session of it has several."""
    stored = baseline.cases.get(case_id)
    return stored is not None and any(len({*one.nodes}) > 1 for one in stored.sessions)


def _of_any_node(measurement: Measurement) -> Measurement:
    """Return the launches as those that they are judged beside: without the name of a node."""
    launches = [msgspec.structs.replace(launch, node=None) for launch in measurement.launches]
    return msgspec.structs.replace(measurement, launches=tuple(launches))


def _compared(
    finding: Finding, there: Finding, nodes: tuple[str | None, str | None], *, is_known: bool
) -> Finding:
    """Return the finding of a slower case beside that of the launches on another node.

    ``nodes`` are both nodes, and ``is_known`` is true if the baseline shows how nodes differ.
    """
    verdict, ratio, (here, node) = finding.verdict, there.verdict.ratio, nodes
    by = "" if ratio is None else f" ({100 * (ratio - 1):+.1f} % there)"
    least, outcome = 1 + (finding.tolerance or 0.0), None
    if rules_out(there, max(verdict.ratio or least, least)):
        what = f"not slower on node {node}{by}"
        if is_known:
            what, outcome = f"{what}, so it is node {here} and not the code", Outcome.BAD_NODE
        else:
            what = f"{what}, which has no baseline; compare both"
    else:
        slower = there.verdict.outcome.is_slower
        what = "slower" if slower else "not shown to be as fast as before"
        what = f"{what} on node {node} as well{by}"
    return finding.noted(NoteKind.OTHER_NODE, what, f"{here}", outcome=outcome)


# A measured session is judged again, without measuring: by another baseline, or tolerances.


_USUAL = Remedies()


def judge_again(
    result: SuiteResult,
    baseline: Baseline,
    *,
    baseline_path: str,
    structures: Mapping[str, StoredWork] = {},
    elsewhere: Mapping[str, str] = {},
    remedies: Remedies = _USUAL,
) -> SuiteResult:
    """Return the result as if ``baseline`` had been stored when its session was measured.

    The level of each verdict stays that of the session, and so do its planned looks. Every verdict
    counts, whether a test asserted it or not.
    """
    context = JudgingContext(
        baseline=baseline,
        baseline_path=baseline_path,
        structures=structures,
        remedies=remedies,
        environment=result.environment,
        machine=result.machine,
        alpha=result.alpha,
        looks=result.looks,
        elsewhere=elsewhere,
        reported=result.reported,
    )
    findings: list[Finding] = []
    for seen in _at_each_look(result):
        summaries = {
            case_id: rows[: len(seen[case_id].launches)]
            for case_id, rows in result.summaries.items()
        }
        findings = merge_findings(findings, judge_suite(seen, summaries, context))
    return msgspec.structs.replace(
        result.unjudged(),
        baseline_path=baseline_path,
        findings=compare_other_node(
            conclude_findings(findings, context, result.date),
            result.elsewhere,
            context,
            here=next(iter(result.nodes), None),
        ),
        links=find_links(result.measurements, result.summaries, baseline, result.environment),
        outlier_host=find_outlier_host(
            result.measurements, result.summaries, baseline, result.environment
        ),
    )


def conclude_findings(
    findings: Iterable[Finding], context: JudgingContext, date: str
) -> tuple[Finding, ...]:
    """Judge in the light of the sessions before ``date``, by each of `CONCLUDING` in turn."""
    for stage in CONCLUDING.values():
        findings = [stage(finding, context, date) for finding in findings]
    return tuple(findings)


def _with_persistence(finding: Finding, context: JudgingContext, date: str) -> Finding:
    stored, host = context.baseline.cases.get(finding.case_id), context.environment.pooled_host
    return with_persistence(finding, stored, date=date, alpha=context.alpha, host=host)


# What happens to a finding of a session after its last launch, in this order.
CONCLUDING: dict[str, Callable[[Finding, JudgingContext, str], Finding]] = {
    "red stays red until it is fixed, and suspects in a row are red": _with_persistence,
    "sessions without a figure are counted": lambda one, context, date: with_unmeasured(
        one, context.baseline.cases.get(one.case_id), date
    ),
    "what somebody acknowledged is expected until its day": (
        lambda one, context, date: with_acknowledgement(one, context.baseline, date)
    ),
    "times of a case that rotates fail nothing": (
        lambda one, context, date: report_only(one, context.reported)
    ),
}


def _at_each_look(result: SuiteResult) -> Iterator[Mapping[str, Measurement]]:
    """Yield the measurements that each look of the session saw; the last ones are complete."""
    for look in range(max(map(len, result.looks.values()), default=0) - 1):
        seen = {
            case_id: _first_launches(measured, result.looks.get(case_id, ()), look)
            for case_id, measured in result.measurements.items()
        }
        if seen == result.measurements:
            break
        yield seen
    yield result.measurements


def _first_launches(measured: Measurement, looks: tuple[int, ...], look: int) -> Measurement:
    """Return the launches up to a look. A failure ends a case, so it is after them."""
    if look >= len(looks) or len(measured.launches) < looks[look]:
        return measured
    return msgspec.structs.replace(measured, launches=measured.launches[: looks[look]], failures=())
