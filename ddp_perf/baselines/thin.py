"""The sessions of a case that stay, and those that are dropped so that it does not grow for years.

The history and version control have the sessions that are dropped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import msgspec

from ddp_perf.core.baseline import CaseBaseline
from ddp_perf.core.metric import METRICS, STEP_TIME
from ddp_perf.core.metric_history import REFERENCE_SESSIONS, MetricHistory, by_half_day
from ddp_perf.core.session import TYPICAL_STEP, Session
from ddp_perf.core.verdict import Outcome

INFORMING = 28  # newest sessions that inform the level and the spread of a metric
NEWEST = 10  # newest sessions of any verdict


def thin(case: CaseBaseline) -> CaseBaseline:
    """Return the case with the sessions, and the terms of them, that are still read."""
    histories = [case.history(metric.name) for metric in METRICS]
    step_time = case.history(STEP_TIME.name)
    of_terms = step_time.reference_of_terms
    read = (session for history in histories for session in _read(case, history))
    marked = _newest_of_slow_nodes(case)
    kept, with_terms = _launches((*read, *of_terms, *marked)), _launches(of_terms)
    sessions = list(_with_witnesses(case, kept))
    if len(of_terms) == len(_not_faster(step_time)) == REFERENCE_SESSIONS:
        sessions = [
            one if _launches([one]) <= with_terms else _without_terms(one) for one in sessions
        ]
    return msgspec.structs.replace(case, sessions=tuple(sessions))


def _without_terms(session: Session) -> Session:
    """Drop the terms, and the typical step, which is compared with them."""
    launches = tuple(
        {name: value for name, value in launch.items() if name != TYPICAL_STEP}
        for launch in session.launches
    )
    return msgspec.structs.replace(session, launches=launches, terms=())


def _launches(sessions: Iterable[Session]) -> set[int]:
    """Return the identities of the launches: sessions of a half-day are merged into one by them."""
    return {id(launch) for session in sessions for launch in session.launches}


def _with_witnesses(case: CaseBaseline, kept: set[int]) -> Iterator[Session]:
    """Yield what is kept; after a suspect session also the next one that is not suspect.

    That one shows whether the suspect session informs, or was the begin of a regression.
    """
    awaited: set[str] = set()  # metrics
    for session in case.sessions:
        suspect = {name for name, found in session.verdicts.items() if found is Outcome.SUSPECT}
        shown = {name for name in awaited - suspect if session.values(name)}
        if shown or _launches([session]) <= kept:
            awaited = (awaited - shown) | suspect
            yield session


def _not_faster(history: MetricHistory) -> tuple[Session, ...]:
    """Return the sessions that set the level as soon as they are enough without faster ones."""
    not_faster = (
        session
        for session in history.at_level
        if session.verdicts.get(history.metric) is not Outcome.IMPROVEMENT
    )
    return tuple(itertools.islice(not_faster, REFERENCE_SESSIONS))


def _newest_of_slow_nodes(case: CaseBaseline) -> Iterator[Session]:
    """Yield the newest session of each node that was slow in it: one for each slow node at most.

    A large fleet may visit a node again after more sessions than are kept.
    """
    seen: set[str] = set()
    for session in reversed(by_half_day(case.sessions_with(STEP_TIME.name))):
        if (set(session.nodes) - seen) & session.slow_nodes.keys():
            yield session
        seen |= set(session.nodes)


def _read(case: CaseBaseline, history: MetricHistory) -> Iterator[Session]:
    """Yield the sessions that are read to judge the metric, some of them more than once."""
    sessions = case.sessions_with(history.metric)
    yield from history.reference
    yield from _not_faster(history)
    yield from history.informing[-INFORMING:]
    yield from _read_of_pool(history)
    yield from sessions[-NEWEST:]
    # Of the newest sessions in a row that are slower: the first three REGRESSION, those that are
    # suspect, and the session before them, without which they would seem to begin earlier.
    run = history.newest_run
    if run:
        by_outcome = [(session.verdicts[history.metric], session) for session in run]
        yield from [session for outcome, session in by_outcome if outcome is Outcome.REGRESSION][:3]
        yield from [session for outcome, session in by_outcome if outcome is Outcome.SUSPECT]
        yield from sessions[: len(sessions) - len(run)][-1:]


def _read_of_pool(history: MetricHistory) -> Iterator[Session]:
    """Yield what sets the level of each host that still measures, and the first of each host."""
    newest = (session.environment.pooled_host for session in history.informing[-INFORMING:])
    measuring = [host for host in dict.fromkeys(newest) if host is not None]
    if not measuring:
        return
    for host in measuring:
        yield from history.on_host(host).reference
    hosts = history.across_hosts()
    yield from hosts.reference
    yield from hosts.informing[-INFORMING:]
