"""The verdicts of cases that rotate over a week: by their times they report, and fail nothing.

They take no part of the false-alarm rate, which the cases of the core share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT, NODES
from ddp_perf.core.verdict import Outcome

_RED = (Outcome.REGRESSION, Outcome.MISSES_TARGET)
_GATING = (*EXACT, NODES)  # whatever the day


def report_only(findings: Iterable[Finding], case_ids: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings, in which nothing but the exact metrics of these cases is red."""
    return tuple(
        _suspect(finding) if finding.case_id in case_ids and _is_red(finding) else finding
        for finding in findings
    )


def _is_red(finding: Finding) -> bool:
    red = finding.verdict.outcome in _RED and finding.metric not in _GATING
    return red and not finding.is_expected


def _suspect(finding: Finding) -> Finding:
    verdict = finding.verdict
    reason = (
        f"{verdict.outcome.value}, reported only: the case rotates over a week, and is not of the"
        f" core (--ddp-config gates it); {verdict.reason}"
    )
    verdict = msgspec.structs.replace(verdict, outcome=Outcome.SUSPECT, reason=reason)
    return msgspec.structs.replace(finding, verdict=verdict)
