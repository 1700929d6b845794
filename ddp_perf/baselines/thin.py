"""The sessions of a case that stay, and those that are dropped so that it does not grow for years.

The history and version control have the sessions that are dropped.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.baseline import CaseBaseline, Session
from ddp_perf.core.metric import METRICS
from ddp_perf.core.verdict import Outcome

INFORMING = 30  # newest sessions that inform the between-session variance of a metric
NEWEST = 10  # newest sessions of any verdict
APART = datetime.timedelta(hours=12)  # sessions that are less apart count as one


def thin(case: CaseBaseline) -> CaseBaseline:
    """Return the case with the sessions, and the terms of them, that are still read."""
    with_terms = {id(session) for session in case.reference_of_terms()}
    kept = {id(session) for metric in METRICS for session in _read(case, metric.name)} | with_terms
    sessions = tuple(
        session if id(session) in with_terms else msgspec.structs.replace(session, terms=())
        for session in case.sessions
        if id(session) in kept
    )
    return msgspec.structs.replace(case, sessions=sessions)


def _read(case: CaseBaseline, metric: str) -> Iterator[Session]:
    """Yield the sessions that are read to judge the metric, some of them more than once."""
    sessions = case.sessions_with(metric)
    yield from case.reference(metric)
    yield from _newest([s for s in sessions if _informs(s, metric)], INFORMING)
    yield from _newest(sessions, NEWEST)
    yield from _start_of_regression(sessions, metric)


def _informs(session: Session, metric: str) -> bool:
    """Return whether the session may inform the variance: an open run of SUSPECT may end yet."""
    return session.verdicts.get(metric) not in (Outcome.REGRESSION, Outcome.IMPROVEMENT)


def _newest(sessions: Sequence[Session], count: int) -> Iterator[Session]:
    """Yield the newest sessions, those that are less than `APART` counted as one."""
    counted: datetime.datetime | None = None
    for session in reversed(sessions):
        date = _date(session)
        if counted is None or counted - date >= APART:
            counted, count = date, count - 1
            if count < 0:
                return
        yield session


def _date(session: Session) -> datetime.datetime:
    date = datetime.datetime.fromisoformat(session.date)
    return date if date.tzinfo else date.replace(tzinfo=datetime.timezone.utc)


def _start_of_regression(sessions: Sequence[Session], metric: str) -> Sequence[Session]:
    """Return the first session of the newest unbroken run of REGRESSION, and the one before it.

    Without the one before it, the run would seem to begin earlier.
    """
    is_red = [session.verdicts.get(metric) is Outcome.REGRESSION for session in sessions]
    if True not in is_red:
        return ()
    first = len(is_red) - 1 - is_red[::-1].index(True)
    while first > 0 and is_red[first - 1]:
        first -= 1
    return sessions[max(first - 1, 0) : first + 1]
