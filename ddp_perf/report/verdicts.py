"""Which verdict stands for a case, and what it does to the session."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import Outcome
from ddp_perf.session.result import FAILING, SuiteResult

# The worst verdict of a case stands for it.
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
    """What a case, or a session, comes to."""

    RED = "RED"
    UNDECIDED = "UNDECIDED"
    GREEN = "GREEN"


def worst(findings: Sequence[Finding]) -> Finding:
    """The first of the worst. Raises ValueError where there is none."""
    return min(findings, key=lambda finding: _SEVERITY.index(finding.verdict.outcome))


def standing_of(result: SuiteResult, finding: Finding) -> Standing:
    """As the test of that finding ends: red, or open, or green."""
    outcome = finding.verdict.outcome
    if outcome in FAILING and not result.is_settled(finding):
        refused = outcome is Outcome.NO_BASELINE and result.is_refused(finding)
        return Standing.UNDECIDED if refused else Standing.RED
    return Standing.GREEN if outcome in _PASSING else Standing.UNDECIDED
