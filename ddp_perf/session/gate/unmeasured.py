"""The sessions in a row in which a metric of a case was INVALID: each alone is excused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import METRICS
from ddp_perf.core.session import are_apart
from ddp_perf.core.verdict import Outcome

_STORED = frozenset(metric.name for metric in METRICS)  # the others leave no gap in a session


def with_unmeasured(
    findings: Iterable[Finding], stored: Mapping[str, CaseBaseline], date: str
) -> list[Finding]:
    """Return the findings; those that are INVALID have the number of such sessions before.

    A stored session of the case lacks the metric that was INVALID. Those that are newer than the
    last one with it count, half a day apart from each other.
    """
    return [
        msgspec.structs.replace(found, unmeasured=_since(found, stored[found.case_id], date))
        if found.verdict.outcome is Outcome.INVALID
        and found.metric in _STORED
        and found.case_id in stored
        else found
        for found in findings
    ]


def _since(finding: Finding, stored: CaseBaseline, now: str) -> int:
    """Count the sessions between the last one with the metric and this one."""
    valid = stored.sessions_with(finding.metric)
    newest = valid[-1].date if valid else ""
    count, last = 0, newest
    for date in (session.date for session in stored.sessions):
        is_new = newest < date < now and are_apart(date, now)
        if is_new and (not last or are_apart(last, date)):
            count, last = count + 1, date
    return count
