"""A verdict among others: of earlier looks and sessions, of cases that rotate or never measure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from ddp_perf.core.baseline import REFERENCE_SESSIONS, CaseBaseline, MetricHistory, are_apart
from ddp_perf.core.measurement import Finding, Look
from ddp_perf.core.metric import EXACT, METRICS, NODES
from ddp_perf.core.note import NoteKind
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted
from ddp_perf.stats.rule.comparison import sessions_to_confirm

# A verdict among those of the sessions before it: suspects in a row, and a regression that stays.
#
# One session decides little about the next. Two rules hold over several sessions:
#
# - Enough suspect sessions in a row are a REGRESSION.
# - After a REGRESSION the case stays red until a session rules out that it is still as slow, or
# until
#   somebody accepts it. A session that cannot decide does not clear it.


_LEFT = 1 / 3
_MAY_MEND = (Outcome.PASS, Outcome.UNDECIDED)


def with_persistence(
    finding: Finding, stored: CaseBaseline | None, *, date: str, alpha: float, host: str | None
) -> Finding:
    """Return the finding of the session of ``date`` in the light of the sessions before it.

    ``stored`` is the baseline of the case, ``alpha`` is the false-alarm rate of a verdict, and
    ``host`` is that of the session if it is of a pool.
    """
    if stored is None:
        return finding
    verdict = finding.verdict
    history = stored.history(finding.metric)
    red = history.regressed
    since = f"{red[0].date[:10]}{_doubt(history)}" if red else ""
    if red and verdict.outcome is Outcome.REGRESSION:
        return _red(finding, NoteKind.RED_SINCE, since)
    may_be_as_slow = verdict.outcome.is_open or verdict.outcome is Outcome.PASS
    is_mended = history.slow_down is not None and rules_out(finding, history.slow_down)
    if red and may_be_as_slow and not is_mended:
        return _red(finding, NoteKind.STILL_RED, since)
    if not red and verdict.chance is not None:
        many = 1 + _apart(history, date, host)
        if many >= sessions_to_confirm(verdict.chance, alpha):
            return _red(finding, NoteKind.SUSPECTS, str(many))
    return finding


def _red(finding: Finding, kind: NoteKind, facts: str) -> Finding:
    """Return the finding as a REGRESSION, which no disturbance excuses."""
    red, outcome = Outcome.REGRESSION, finding.verdict.outcome
    found = finding.noted(kind, facts, outcome=red)
    return msgspec.structs.replace(found, by_itself=None if outcome is red else outcome)


def rules_out(finding: Finding, slow_down: float) -> bool:
    """Return whether launches rule out a slow-down, a ratio, which is at least the tolerance.

    At most a third of it may be left. If the verdict is no PASS, its interval must also lie below
    the slow-down.
    """
    verdict = finding.verdict
    if verdict.outcome not in _MAY_MEND or finding.tolerance is None:
        return False
    if verdict.ratio is None or verdict.interval is None:
        return False
    slow_down = max(slow_down, 1 + finding.tolerance)
    if verdict.ratio - 1 > _LEFT * (slow_down - 1):
        return False
    return verdict.outcome is Outcome.PASS or verdict.interval[1] < slow_down


def _doubt(history: MetricHistory) -> str:
    """Return the question which sessions are right, while few of them set the level."""
    count = len(history.reference)
    if count >= REFERENCE_SESSIONS:
        return ""
    sessions = counted(count, "faster session")
    return f" (against only {sessions}; if the later ones are right, accept them)"


def _apart(history: MetricHistory, date: str, host: str | None) -> int:
    """Count the suspect sessions that are half a day apart, from each other and from `date`.

    Of a pool's host that has no session at the level, only one counts: they share the host, which
    may be the slow one.
    """
    known = {None, *(session.environment.pooled_host for session in history.at_level)}
    count, later, seen = 0, date, {host}
    for session in reversed(history.newest_run):
        where = session.environment.pooled_host
        if are_apart(session.date, later) and (where in known or where not in seen):
            count, later = count + 1, session.date
            seen.add(where)
    return count


# The sessions in a row in which a metric of a case was INVALID: each alone is excused.


_STORED = frozenset(metric.name for metric in METRICS)  # the others leave no gap in a session


def with_unmeasured(finding: Finding, stored: CaseBaseline | None, date: str) -> Finding:
    """Return the finding; one that is INVALID has the number of such sessions before ``date``.

    A stored session of the case lacks the metric that was INVALID. Those that are newer than the
    last one with it count, half a day apart from each other.
    """
    is_invalid = finding.verdict.outcome is Outcome.INVALID and finding.metric in _STORED
    if stored is None or not is_invalid:
        return finding
    valid = stored.sessions_with(finding.metric)
    newest = valid[-1].date if valid else ""
    count, last = 0, newest
    for before in (session.date for session in stored.sessions):
        is_new = newest < before < date and are_apart(before, date)
        if is_new and (not last or are_apart(last, before)):
            count, last = count + 1, before
    return msgspec.structs.replace(finding, unmeasured=count)


# The findings of several looks at the same session: which verdicts are final.


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
    if not old.verdict.outcome.is_open:
        return old
    look = Look(launches=old.launches, verdict=old.verdict)
    return msgspec.structs.replace(new, earlier=(*old.earlier, look))


# The verdicts of cases that rotate over a week: by their times they report, and fail nothing.
#
# They take no part of the false-alarm rate, which the cases of the core share.


_GATING = (*EXACT, NODES)  # whatever the day


def report_only(finding: Finding, case_ids: Collection[str]) -> Finding:
    """Return the finding, which is red only by an exact metric if its case is one of these."""
    is_red = finding.verdict.outcome.is_red and finding.metric not in _GATING
    if finding.case_id not in case_ids or not is_red or finding.is_expected:
        return finding
    return finding.noted(NoteKind.ROTATES, outcome=Outcome.SUSPECT)
