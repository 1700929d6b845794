"""A verdict among others: of earlier looks and sessions, of cases that rotate or never measure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from ddp_perf.core.baseline import REFERENCE_SESSIONS, CaseBaseline, MetricHistory, are_apart
from ddp_perf.core.measurement import Finding, Look
from ddp_perf.core.metric import EXACT, METRICS, NODES
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
_REMEDIES = (
    'fix it, accept it (--save-baseline=accept --ddp-reason "…"), or expect it until a day'
    " (ddp-perf baseline ack)"
)
_MAY_MEND = (Outcome.PASS, Outcome.UNDECIDED)


def with_persistence(
    findings: Iterable[Finding],
    stored: Mapping[str, CaseBaseline],
    *,
    date: str,
    alpha: float,
    host: str | None = None,
) -> list[Finding]:
    """Return the findings of the session of ``date`` in the light of the sessions before it.

    ``stored`` are the baselines by case id, ``alpha`` is the false-alarm rate of a verdict, and
    ``host`` is that of the session if it is of a pool.
    """
    return [
        _persisting(finding, stored[finding.case_id], date, alpha, host)
        if finding.case_id in stored
        else finding
        for finding in findings
    ]


def _persisting(
    finding: Finding, stored: CaseBaseline, date: str, alpha: float, host: str | None
) -> Finding:
    verdict = finding.verdict
    history = stored.history(finding.metric)
    red = history.regressed
    since = f"slower since {red[0].date[:10]}{_doubt(history)}" if red else ""
    if red and verdict.outcome is Outcome.REGRESSION:
        return _red(finding, f"{verdict.reason}. It has been {since}; {_REMEDIES}")
    may_be_as_slow = verdict.outcome.is_open or verdict.outcome is Outcome.PASS
    if red and may_be_as_slow and not _shows_a_mend(finding, history):
        mend = f"{since}, and not shown to be fixed; {_REMEDIES}"
        return _red(finding, f"{mend}. This session: {verdict.reason}")
    if not red and verdict.chance is not None:
        many = 1 + _apart(history, date, host)
        if many >= sessions_to_confirm(verdict.chance, alpha):
            return _red(finding, f"suspect {many} sessions in a row; {verdict.reason}")
    return finding


def _red(finding: Finding, reason: str) -> Finding:
    """Return the finding as a REGRESSION. The reason has the disturbance, which excuses nothing."""
    verdict = msgspec.structs.replace(
        finding.verdict,
        outcome=Outcome.REGRESSION,
        reason=reason,
        more_launches=None,
        likely_launches=None,
    )
    outcome = finding.verdict.outcome
    by_itself = None if outcome is Outcome.REGRESSION else outcome
    return msgspec.structs.replace(finding, verdict=verdict, by_itself=by_itself, disturbance=None)


def _shows_a_mend(finding: Finding, history: MetricHistory) -> bool:
    """Return whether the session rules out that the case is still as slow as it was."""
    return history.slow_down is not None and rules_out(finding, history.slow_down)


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


def report_only(findings: Iterable[Finding], case_ids: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings, in which nothing but the exact metrics of these cases is red."""
    return tuple(
        _suspect(finding) if finding.case_id in case_ids and _is_red(finding) else finding
        for finding in findings
    )


def _is_red(finding: Finding) -> bool:
    red = finding.verdict.outcome.is_red and finding.metric not in _GATING
    return red and not finding.is_expected


def _suspect(finding: Finding) -> Finding:
    verdict = finding.verdict
    reason = (
        f"{verdict.outcome.value}, reported only, since the case rotates over a week"
        f" (--ddp-config gates it); {verdict.reason}"
    )
    verdict = msgspec.structs.replace(verdict, outcome=Outcome.SUSPECT, reason=reason)
    return msgspec.structs.replace(finding, verdict=verdict)
