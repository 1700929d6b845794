"""The cases of a history as a site shows them: their series, trends, regressions and standing."""

from __future__ import annotations

import datetime
import re
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.baseline import instant
from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME, TARGETS
from ddp_perf.core.verdict import GateAudit
from ddp_perf.errors import HistoryError
from ddp_perf.history.records import HistoryPoint, SessionInfo, StoredCase, TimeSeries
from ddp_perf.history.standing import Regression, State, regressions
from ddp_perf.history.store import HistoryStore
from ddp_perf.history.trend import CaseHistory, case_history
from ddp_perf.render.model import Status

_FIGURES = tuple(metric.name for metric in METRICS)  # the step time first
_METRICS = (*_FIGURES, *(target.name for target in TARGETS), *EXACT)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_PAUSE = datetime.timedelta(days=15)  # a case that rotates is measured once a week
_MOST_NAME = 100  # characters of a file's name


class CaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A case on one kind of machine, with all its metrics."""

    case: StoredCase
    suite: str
    histories: dict[str, CaseHistory]  # by metric, of those with a figure; the main one comes first
    regressions: tuple[Regression, ...]  # of all metrics
    newest: tuple[HistoryPoint, ...]  # of each metric that the newest session judged, worst first
    is_measured: bool = True  # False: later sessions of its suite did not measure it

    @property
    def main(self) -> CaseHistory:
        """The history of the step time, which each session has."""
        return self.histories[STEP_TIME.name]

    @property
    def info(self) -> SessionInfo:
        """The newest session."""
        return self.main.series.sessions[-1].session

    @property
    def open(self) -> list[Regression]:
        return [one for one in self.regressions if one.state.is_open]

    @property
    def file(self) -> str:
        """The page's name. It is the same in each site of this case, so that links to it last."""
        key = f"{self.case.accelerator} {self.suite} {self.case.case_id}"
        name = _UNSAFE.sub("-", key).strip(".-")[:_MOST_NAME]
        return f"{name}-{zlib.crc32(key.encode()):08x}.html"

    @property
    def standing(self) -> tuple[Status, str]:
        """The status, and a word for it."""
        if not self.is_measured:
            return Status.UNTESTED, f"not measured since {self.info.date[:10]}"
        states = {one.state for one in self.open}
        if State.OPEN in states:
            return Status.RED, "slower" if self._is_slower else "red"
        if State.ACKNOWLEDGED in states:
            return Status.UNDECIDED, "acknowledged"
        worst = self.newest[0].figure.verdict if self.newest else None
        if worst is None:
            return Status.UNTESTED, "not judged"
        return Status.of(worst.outcome), worst.outcome.value

    @property
    def _is_slower(self) -> bool:
        return any(one.verdict.outcome.is_slower for one in self.open)


class SiteViews(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a site."""

    cases: tuple[CaseView, ...]  # the red ones first, then by name
    audits: tuple[GateAudit, ...]  # oldest first


def views_of(store: HistoryStore) -> SiteViews:
    """Read all cases of a history. Raises HistoryError if it cannot be read or has no session."""
    stored: dict[tuple[str, str], list[StoredCase]] = {}
    for case in store.cases():
        stored.setdefault((case.accelerator, case.case_id), []).append(case)
    found = [view for works in stored.values() for view in _views(store, works)]
    if not found:
        raise HistoryError(f"{store.name}: it has no session; pytest --ddp-history appends one")
    found = _with_ends(found)
    order = list(Status)
    found.sort(key=lambda one: order.index(one.standing[0]))
    return SiteViews(cases=tuple(found), audits=tuple(store.audits()))


def _with_ends(views: Sequence[CaseView]) -> list[CaseView]:
    """Mark the cases that their suite has not measured any more for longer than a case rotates."""
    newest: dict[tuple[str, str], datetime.datetime] = {}
    for view in views:
        key, date = (view.suite, view.case.accelerator), instant(view.info.date)
        newest[key] = max(date, newest.get(key, date))
    return [
        view
        if newest[view.suite, view.case.accelerator] - instant(view.info.date) <= _LONGEST_PAUSE
        else msgspec.structs.replace(
            view, is_measured=False, regressions=tuple(map(_ended, view.regressions))
        )
        for view in views
    ]


def _views(store: HistoryStore, works: Sequence[StoredCase]) -> Iterator[CaseView]:
    """Yield a view for each suite that has the case, of the work that it measured last."""
    of_suite: dict[str, list[TimeSeries]] = {}
    for case in works:
        for suite, series in _by_suite(store.series(case, STEP_TIME.name)).items():
            of_suite.setdefault(suite, []).append(series)
    for suite, found in of_suite.items():
        *older, main = sorted(found, key=lambda one: one.sessions[-1].session.date)
        yield _view(store, suite, main, [one.case for one in older])


def _view(
    store: HistoryStore, suite: str, main: TimeSeries, older: Sequence[StoredCase]
) -> CaseView:
    series = _series(store, main.case, suite)
    natural = [one.session for one in main.sessions if not one.session.injections]
    last = natural[-1] if natural else None
    points = [point for one in series.values() for point in one.sessions if point.session == last]
    newest = tuple(sorted(filter(_is_judged, points), key=_severity))
    judged = {point.figure.metric for point in newest}
    now = regressions(series.values())
    before = [one for case in older for one in regressions(_series(store, case, suite).values())]
    return CaseView(
        case=main.case,
        suite=suite,
        histories={name: case_history(series[name]) for name in _FIGURES if name in series},
        regressions=(
            *(one if one.metric in judged or not judged else _ended(one) for one in now),
            *map(_ended, before),
        ),
        newest=newest,
    )


def _series(store: HistoryStore, case: StoredCase, suite: str) -> dict[str, TimeSeries]:
    """Return the series of each metric that this suite measured."""
    every = {name: _by_suite(store.series(case, name)).get(suite) for name in _METRICS}
    return {name: one for name, one in every.items() if one is not None}


def _by_suite(series: TimeSeries) -> dict[str, TimeSeries]:
    """Return the sessions of each suite: ids are unique in a suite alone."""
    points: dict[str, list[HistoryPoint]] = {}
    for point in series.sessions:
        points.setdefault(point.session.suite, []).append(point)
    return {
        suite: msgspec.structs.replace(series, sessions=tuple(found))
        for suite, found in points.items()
    }


def _ended(regression: Regression) -> Regression:
    """Return a regression of what is not judged any more: its work or its gate changed."""
    state = State.ENDED if regression.state.is_open else regression.state
    return msgspec.structs.replace(regression, state=state)


def _is_judged(point: HistoryPoint) -> bool:
    return point.figure.verdict is not None


def _severity(point: HistoryPoint) -> int:
    assert point.figure.verdict is not None  # it is judged
    return point.figure.verdict.outcome.severity
