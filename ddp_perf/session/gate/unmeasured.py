"""The sessions in a row in which a metric of a case was INVALID: each alone is excused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.measurement import Finding
from ddp_perf.core.session import are_apart
from ddp_perf.core.verdict import Outcome


def with_unmeasured(
    findings: Iterable[Finding], stored: Mapping[str, CaseBaseline], date: str
) -> list[Finding]:
    """Return the findings; those that are INVALID have the number of such sessions before.

    A stored session lacks what was INVALID, or the whole case. So the sessions of all these cases
    count that are newer than the last one with the metric, and half a day apart from each other.
    """
    findings = list(findings)
    ids = {found.case_id for found in findings}
    dates = sorted({one.date for id_ in ids & stored.keys() for one in stored[id_].sessions})
    return [
        msgspec.structs.replace(found, unmeasured=_since(found, stored[found.case_id], dates, date))
        if found.verdict.outcome is Outcome.INVALID and found.case_id in stored
        else found
        for found in findings
    ]


def _since(finding: Finding, stored: CaseBaseline, dates: Iterable[str], now: str) -> int:
    """Count the sessions between the last one with the metric and this one."""
    valid = stored.sessions_with(finding.metric)
    newest = valid[-1].date if valid else ""
    count, last = 0, newest
    for date in dates:
        is_new = newest < date < now and are_apart(date, now)
        if is_new and (not last or are_apart(last, date)):
            count, last = count + 1, date
    return count
