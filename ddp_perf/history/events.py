"""The changes of standing that one session made: each of them is an event of that session alone."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import SessionInfo, SessionRecord, TimeSeries
from ddp_perf.history.standing import Regression, State, regressions
from ddp_perf.history.store import HistoryStore


class EventKind(str, enum.Enum):
    """The kinds of events, in the order in which a reader needs them."""

    NEW = "new"
    CONTINUING = "continuing"
    FIXED = State.FIXED.value
    ACCEPTED = State.ACCEPTED.value
    ENDED = State.ENDED.value


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A regression that this session found, confirmed or ended."""

    kind: EventKind
    case_id: str
    session: SessionInfo
    regression: Regression


def events(series: Iterable[TimeSeries], session: SessionInfo) -> list[Event]:
    """Return the events of this session in these metrics."""
    return [
        Event(kind=kind, case_id=one.case.case_id, session=session, regression=found)
        for one in series
        for found in regressions([one])
        if (kind := _kind(found, session)) is not None
    ]


def recorded_events(store: HistoryStore, sessions: Iterable[SessionRecord]) -> list[Event]:
    """Return the events of these sessions, which are stored, the worst first.

    Raises HistoryError.
    """
    cases = {case.key: case for case in store.cases()}
    red = store.metrics_with([outcome for outcome in Outcome if outcome.is_red])
    found = []
    for record in sessions:
        accelerator = record.info.environment.accelerator_key
        measured = {(accelerator, case.case_id) for case in record.cases}
        series = (
            store.series(cases[key], metric)
            for key, metric in red
            if (cases[key].accelerator, cases[key].case_id) in measured
        )
        found += events(series, record.info)
    return sorted(found, key=_urgency)


def _kind(found: Regression, session: SessionInfo) -> EventKind | None:
    if found.after is not None:
        ended = found.after.identity == session.identity
        return EventKind(found.state.value) if ended else None
    if found.state is State.ACKNOWLEDGED or found.newest.identity != session.identity:
        return None
    if found.is_new:
        return EventKind.NEW
    # After an acknowledgement has expired, a regression of any age needs attention once more.
    once = found.red_sessions == 2 or found.unexpected_sessions == 1
    return EventKind.CONTINUING if once else None


def _urgency(event: Event) -> tuple[int, float]:
    """Return the place of an event: by kind, then exact metrics, then the largest change."""
    ratio = event.regression.verdict.ratio
    return list(EventKind).index(event.kind), float("-inf") if ratio is None else -ratio
