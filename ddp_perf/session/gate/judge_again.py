"""A measured session is judged again, without measuring: by another baseline, or tolerances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ddp_perf.core.baseline import Baseline, CaseStructure
from ddp_perf.core.case import Case
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.session.gate.acknowledgement import with_acknowledgements
from ddp_perf.session.gate.judge_suite import JudgingContext, Remedies, judge_suite
from ddp_perf.session.gate.links import find_links
from ddp_perf.session.gate.looks import merge_findings
from ddp_perf.session.gate.other_node import compare_other_node
from ddp_perf.session.gate.persistence import with_persistence
from ddp_perf.session.gate.pool import find_outlier_host
from ddp_perf.session.gate.reported import report_only
from ddp_perf.session.gate.unmeasured import with_unmeasured
from ddp_perf.session.result import SuiteResult

_USUAL = Remedies()


def judge_again(
    result: SuiteResult,
    baseline: Baseline,
    *,
    baseline_path: str,
    structures: Mapping[str, CaseStructure] = {},
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
    """Judge in the light of the sessions before, and add the acknowledgements of that day.

    The times of a case that rotates are not red.
    """
    persisting = with_persistence(
        findings,
        context.baseline.cases,
        date=date,
        alpha=context.alpha,
        host=context.environment.pooled_host,
    )
    cases = context.baseline.cases
    known = with_acknowledgements(with_unmeasured(persisting, cases, date), context.baseline, date)
    return report_only(known, context.reported)


def with_tolerances(result: SuiteResult, tolerances: Mapping[str, float]) -> SuiteResult:
    """Return the result with these tolerances, by metric, in each case that gates the metric."""
    return msgspec.structs.replace(
        result,
        measurements={
            case_id: msgspec.structs.replace(measured, case=_tolerant(measured.case, tolerances))
            for case_id, measured in result.measurements.items()
        },
    )


def _tolerant(case: Case, tolerances: Mapping[str, float]) -> Case:
    gated = {
        metric: tolerance
        for metric, tolerance in tolerances.items()
        if case.tolerances.of(metric) is not None
    }
    changed = msgspec.structs.replace(case.tolerances, **gated)
    return msgspec.structs.replace(case, tolerances=changed)


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
