"""The conclusion from all findings of a session: the worst one decides."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from ddp_perf.core.exit_code import ExitCode
from ddp_perf.core.measurement import Finding
from ddp_perf.core.verdict import Outcome

_WORSE = (
    Outcome.REGRESSION,
    Outcome.BAD_NODE,
    Outcome.INCOMPARABLE,
    Outcome.MISSES_TARGET,
)
_GOOD = (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.MEETS_TARGET)


class Conclusion(str, enum.Enum):
    """The possible conclusions of the commands that judge."""

    PASS = "PASS"
    REGRESSION = "REGRESSION"
    UNDECIDED = "UNDECIDED"

    @property
    def exit_code(self) -> ExitCode:
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Conclusion.PASS: ExitCode.GREEN,
    Conclusion.REGRESSION: ExitCode.RED,
    Conclusion.UNDECIDED: ExitCode.UNDECIDED,
}


def conclude(findings: Iterable[Finding], *, failed: bool, missing: bool) -> Conclusion:
    """Return the conclusion; ``failed`` and ``missing``: a case was, so that it has no finding.

    An acknowledged regression does not fail until its day, and is no pass either.
    """
    findings = list(findings)
    expected = any(found.is_expected for found in findings)
    outcomes = {found.verdict.outcome for found in findings if not found.is_expected}
    if failed or not outcomes.isdisjoint(_WORSE):
        return Conclusion.REGRESSION
    if missing or expected or not outcomes or not outcomes.issubset(_GOOD):
        return Conclusion.UNDECIDED
    return Conclusion.PASS
