"""The findings of several looks at the same session: which verdicts are final."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddp_perf.core.measurement import Finding, Look
from ddp_perf.core.metric import EXACT
from ddp_perf.core.verdict import OPEN


def merge_findings(before: Iterable[Finding], now: Iterable[Finding]) -> list[Finding]:
    """Merge the findings of another look into those before.

    A decided finding stays as it was. Structure and loss are exact: their newest findings replace
    the older ones. An undecided finding is replaced, and keeps the verdicts of earlier looks. A
    case that failed since then is not judged again, and keeps its findings.
    """
    earlier = {(finding.case_id, finding.metric): finding for finding in before}
    merged = [
        _merged(earlier.pop((finding.case_id, finding.metric), None), finding) for finding in now
    ]
    return [*merged, *earlier.values()]


def _merged(old: Finding | None, new: Finding) -> Finding:
    if old is None or old.launches == new.launches:
        return old or new
    if new.metric in EXACT:
        return new
    if old.verdict.outcome not in OPEN:
        return old
    look = Look(launches=old.launches, verdict=old.verdict)
    return msgspec.structs.replace(new, earlier=(*old.earlier, look))
