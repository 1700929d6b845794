"""Regressions that somebody knew of: expected until a date, and no longer."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddp_perf.core.baseline import Acknowledgement, Baseline
from ddp_perf.core.measurement import Finding, Known
from ddp_perf.core.verdict import Outcome

_GOOD = (Outcome.PASS, Outcome.IMPROVEMENT)


def with_known(findings: Iterable[Finding], baseline: Baseline, date: str) -> tuple[Finding, ...]:
    """The findings, each with what was acknowledged of it. ``date``: the session's."""
    return tuple(
        msgspec.structs.replace(
            found, known=_known(found, baseline.acknowledgement(found.case_id, found.metric), date)
        )
        for found in findings
    )


def _known(found: Finding, said: Acknowledgement | None, date: str) -> Known | None:
    """None where nothing was said, or this session cannot tell."""
    if said is None:
        return None
    if found.verdict.outcome in _GOOD:
        return Known(acknowledgement=said, state="over")
    if found.verdict.outcome is Outcome.REGRESSION:
        return Known(acknowledgement=said, state="expected" if said.holds(date) else "expired")
    return None
