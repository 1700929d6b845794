"""The regressions of a case: each from the session that found it to the one that ended it."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import (
    HistoryPoint,
    RecordedFigure,
    RecordedVerdict,
    SessionInfo,
    TimeSeries,
)


class State(str, enum.Enum):
    """The state of a regression. An open one comes first."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # expected until a day, with a reason
    FIXED = "fixed"  # the figure came back
    ACCEPTED = "accepted"  # the figure stayed, and became the level
    ENDED = "ended"  # of an exact metric: whether it was fixed or accepted is not recorded

    @property
    def is_open(self) -> bool:
        return self in (State.OPEN, State.ACKNOWLEDGED)


class Regression(msgspec.Struct, frozen=True, kw_only=True):
    """A run of red sessions of one metric. Sessions without a clear verdict do not end it."""

    metric: str
    state: State
    before: SessionInfo | None  # the last session that was not red; None: the first one was red
    first: SessionInfo  # the first red session
    newest: SessionInfo  # the newest red session
    after: SessionInfo | None  # the session that ended it; None: it is open
    red_sessions: int
    unexpected_sessions: int  # of them, the newest that no acknowledgement expected
    verdict: RecordedVerdict  # of the newest red session

    @property
    def is_new(self) -> bool:
        """True if one session alone found it."""
        return self.red_sessions == 1


def regressions(series: Iterable[TimeSeries]) -> list[Regression]:
    """Return the regressions of these metrics, the open ones first, then the newest ones."""
    found = [one for each in series for one in _of_series(each)]
    found.sort(key=lambda one: one.first.date, reverse=True)
    return sorted(found, key=lambda one: not one.state.is_open)


def _of_series(series: TimeSeries) -> Iterator[Regression]:
    """Yield those of each suite, and of each host of a pool: none of them ends one of another."""
    judged: dict[tuple[str, str | None], list[HistoryPoint]] = {}
    for point in series.sessions:
        where = point.session.suite, point.session.environment.pooled_host
        judged.setdefault(where, []).append(point)
    for points in judged.values():
        yield from _of_points(series.metric, points)


def _of_points(metric: str, points: Sequence[HistoryPoint]) -> Iterator[Regression]:
    good: HistoryPoint | None = None
    red: list[HistoryPoint] = []
    for point in points:
        verdict = point.figure.verdict
        if verdict is None or point.session.injections:
            continue
        if verdict.outcome.is_red and verdict.outcome is not Outcome.BAD_NODE:
            red.append(point)
        elif verdict.outcome.is_good:
            if red:
                yield _regression(metric, good, red, point)
            good, red = point, []
    if red:
        yield _regression(metric, good, red, None)


def _regression(
    metric: str,
    before: HistoryPoint | None,
    red: Sequence[HistoryPoint],
    after: HistoryPoint | None,
) -> Regression:
    newest = red[-1]
    assert newest.figure.verdict is not None  # it is red
    return Regression(
        metric=metric,
        state=_state(newest.figure, newest.figure.verdict, after),
        before=None if before is None else before.session,
        first=red[0].session,
        newest=newest.session,
        after=None if after is None else after.session,
        red_sessions=len(red),
        unexpected_sessions=sum(1 for _ in itertools.takewhile(_is_unexpected, reversed(red))),
        verdict=newest.figure.verdict,
    )


def _is_unexpected(point: HistoryPoint) -> bool:
    return point.figure.verdict is not None and point.figure.verdict.acknowledged is None


def _state(slow: RecordedFigure, verdict: RecordedVerdict, after: HistoryPoint | None) -> State:
    if after is None:
        return State.OPEN if verdict.acknowledged is None else State.ACKNOWLEDGED
    if verdict.outcome is Outcome.MISSES_TARGET:
        return State.FIXED
    value = after.figure.value
    if not (slow.baseline and slow.value and value):
        return State.ENDED
    came_back = abs(math.log(value / slow.baseline)) < abs(math.log(value / slow.value))
    return State.FIXED if came_back else State.ACCEPTED
