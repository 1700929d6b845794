"""The status of a verdict in its session, and the verdict that represents a case."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.model import Status
from ddp_perf.session.result import SuiteResult

STORED = "STORED"  # there was nothing to compare with before this session
NO_TEST = "(no test)"  # the mark of what is shown and not counted

NOT_GREEN = (Status.RED, Status.UNDECIDED)


def worst(result: SuiteResult, findings: Sequence[Finding]) -> Finding:
    """Return the worst finding. Raises ValueError if there is none.

    A finding that fails the session precedes a worse one that was acknowledged, and one that a
    test asserts precedes a worse one that no test asserts.
    """
    return min(findings, key=lambda found: rank(result, found))


def rank(result: SuiteResult, finding: Finding) -> tuple[int, int]:
    """Return the place of a finding among others: the worst has the lowest."""
    status = list(Status).index(status_of(result, finding))
    return status, finding.verdict.outcome.severity


def status_of(result: SuiteResult, finding: Finding) -> Status:
    """Return the status that the test of this finding ends with."""
    outcome = finding.verdict.outcome
    if not result.is_asserted(finding.case_id, finding.metric):
        return Status.UNTESTED
    if result.is_not_accepted(finding):
        return Status.RED
    if outcome is Outcome.NO_BASELINE and not result.is_refused(finding):
        return Status.UNDECIDED  # it fails its test, but nothing is known of the code
    if outcome.fails and not result.is_resolved(finding):
        undecided = finding.is_expected or result.is_open(finding)
        return Status.UNDECIDED if undecided else Status.RED
    return Status.GREEN if outcome.is_good else Status.UNDECIDED


def shown_verdict(result: SuiteResult, finding: Finding) -> str:
    """Return the verdict with its mark: that no test asserts it, it was stored, or it is known."""
    outcome = finding.verdict.outcome
    verdict = outcome.value
    if status_of(result, finding) is Status.UNTESTED:
        return f"{verdict} {NO_TEST}"
    if result.is_resolved(finding):
        return STORED if outcome is Outcome.NO_BASELINE else f"{verdict} (stored)"
    return f"{verdict} (known)" if finding.is_expected else verdict
