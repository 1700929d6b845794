"""Acknowledged regressions and missed targets: they are expected until a date."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddp_perf.core.baseline import Acknowledgement, Baseline
from ddp_perf.core.measurement import Finding, Known
from ddp_perf.core.metric import EXACT
from ddp_perf.core.verdict import Outcome

_GOOD = (Outcome.PASS, Outcome.IMPROVEMENT, Outcome.MEETS_TARGET)
_BAD = (Outcome.REGRESSION, Outcome.MISSES_TARGET)


def with_acknowledgements(
    findings: Iterable[Finding], baseline: Baseline, date: str
) -> tuple[Finding, ...]:
    """Return the findings with their acknowledgements, by the ``date`` of the session."""
    return tuple(
        msgspec.structs.replace(
            found, known=_known(found, baseline.acknowledgement(found.case_id, found.metric), date)
        )
        for found in findings
    )


def _known(found: Finding, given: Acknowledgement | None, date: str) -> Known | None:
    """Return the state of an acknowledgement, or None if none applies to this verdict."""
    if given is None:
        return None
    if found.verdict.outcome in _GOOD:
        return Known(acknowledgement=given, state="over")
    if found.verdict.outcome not in _BAD:
        return None
    if not given.holds(date):
        return Known(acknowledgement=given, state="expired")
    return Known(acknowledgement=given, state="grown" if _grown(found, given) else "expected")


def _grown(found: Finding, given: Acknowledgement) -> bool:
    """Return whether it is slower than was acknowledged: certainly, and by the tolerance.

    Of an exact metric, one value is acknowledged, and no other.
    """
    if found.metric in EXACT:
        return not found.as_acknowledged
    interval = found.verdict.interval
    if given.ratio is None or interval is None or found.tolerance is None:
        return False
    return interval[0] > given.ratio * (1 + found.tolerance)
