"""The verdict that represents a case, and its effect on the session."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import FAILING, SuiteResult

# Among verdicts with the same status, the first in this order represents the case.
SEVERITY = [
    Outcome.REGRESSION,
    Outcome.INCOMPARABLE,
    Outcome.BELOW_PUBLISHED,
    Outcome.NO_BASELINE,
    Outcome.INVALID,
    Outcome.SUSPECT,
    Outcome.INCONCLUSIVE,
    Outcome.MEETS_PUBLISHED,
    Outcome.PASS,
    Outcome.IMPROVEMENT,
]
_PASSING = (Outcome.MEETS_PUBLISHED, Outcome.PASS, Outcome.IMPROVEMENT)


class Status(str, enum.Enum):
    """The status of a case, or of a session. The worst comes first."""

    RED = "RED"
    UNDECIDED = "UNDECIDED"
    GREEN = "GREEN"


def worst(result: SuiteResult, findings: Sequence[Finding]) -> Finding:
    """Return the worst finding. Raises ValueError if there is none.

    A finding that fails the session precedes a worse one that was acknowledged.
    """
    statuses = list(Status)
    return min(
        findings,
        key=lambda found: (
            statuses.index(status_of(result, found)),
            SEVERITY.index(found.verdict.outcome),
        ),
    )


def status_of(result: SuiteResult, finding: Finding) -> Status:
    """Return the status that the test of this finding ends with."""
    outcome = finding.verdict.outcome
    if outcome in FAILING and not result.is_settled(finding):
        return Status.UNDECIDED if finding.is_expected else Status.RED
    return Status.GREEN if outcome in _PASSING else Status.UNDECIDED
