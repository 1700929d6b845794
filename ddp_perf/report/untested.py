"""Sentences on the verdicts that no test asserts: they are shown, and not counted."""

from __future__ import annotations

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted
from ddp_perf.report.verdicts import NO_TEST
from ddp_perf.session.result import SuiteResult


def untested_lines(result: SuiteResult) -> list[str]:
    """Return the number of cases that do not count, and a line for each that failed or is slower.

    There is no line if tests request every case that failed, and assert every other verdict. A case
    that the session did not judge before it ended has no verdict that a test could assert.
    """
    tested = {found.case_id for found in result.asserted_findings()}
    judged = {found.case_id for found in result.findings}
    cases = [
        case_id
        for case_id, measurement in result.measurements.items()
        if case_id not in tested and case_id in judged and not measurement.failed
    ]
    lines = [_not_counted(len(cases))] if cases and result.asserted is not None else []
    failed = [str(failure).splitlines()[0] for failure in untested_failures(result)]
    lines += [f"FAILED {NO_TEST}: {failure}" for failure in failed]
    return [*lines, *(_regression(found) for found in result.findings if _is_hidden(result, found))]


def untested_failures(result: SuiteResult) -> list[LaunchFailure]:
    """Return the first failure of each case that failed and that no test requests."""
    return [
        measurement.failures[0]
        for case_id, measurement in result.measurements.items()
        if measurement.failed and not result.is_requested(case_id)
    ]


def _not_counted(cases: int) -> str:
    verb, its = ("is", "its") if cases == 1 else ("are", "their")
    return (
        f"{NO_TEST}: {counted(cases, 'case')} {verb} measured and not counted: no test asserts"
        f" {its} verdicts"
    )


def _is_hidden(result: SuiteResult, finding: Finding) -> bool:
    bad = finding.verdict.outcome in (
        Outcome.REGRESSION,
        Outcome.MISSES_TARGET,
        Outcome.BAD_NODE,
    )
    return (
        bad and not finding.is_expected and not result.is_asserted(finding.case_id, finding.metric)
    )


def _regression(finding: Finding) -> str:
    ratio = finding.verdict.ratio
    size = "" if ratio is None else f": {ratio:.3f} × the baseline"
    if finding.target is not None or finding.verdict.outcome is Outcome.BAD_NODE:
        size = f": {finding.verdict.reason}"
    what = f"{metric_title(finding.metric)} of {finding.case_id}"
    return f"{finding.verdict.outcome.value} {NO_TEST}: {what}{size}"
