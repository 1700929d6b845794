"""Which verdict stands for a case, and what it does to the session."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import FAILING, SuiteResult

# Of verdicts that come to the same, the worst stands for the case.
_SEVERITY = [
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


class Standing(str, enum.Enum):
    """What a case, or a session, comes to; the worst comes first."""

    RED = "RED"
    UNDECIDED = "UNDECIDED"
    GREEN = "GREEN"


def worst(result: SuiteResult, findings: Sequence[Finding]) -> Finding:
    """The first of the worst: what fails the session stands before a worse verdict that somebody
    expected. Raises ValueError where there is none.
    """
    standings = list(Standing)
    return min(
        findings,
        key=lambda found: (
            standings.index(standing_of(result, found)),
            _SEVERITY.index(found.verdict.outcome),
        ),
    )


def is_expected(finding: Finding) -> bool:
    """Whether somebody acknowledged it beforehand, until a date that is not yet over."""
    return finding.known is not None and finding.known.state == "expected"


def standing_of(result: SuiteResult, finding: Finding) -> Standing:
    """As the test of that finding ends: red, or open, or green."""
    outcome = finding.verdict.outcome
    if outcome in FAILING and not result.is_settled(finding):
        refused = outcome is Outcome.NO_BASELINE and result.is_refused(finding)
        return Standing.UNDECIDED if refused or is_expected(finding) else Standing.RED
    return Standing.GREEN if outcome in _PASSING else Standing.UNDECIDED
