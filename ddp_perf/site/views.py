"""The cases of a history as a site shows them: their series, trends, regressions and standing."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.metric import EXACT, METRICS, STEP_TIME, TARGETS
from ddp_perf.core.verdict import GateAudit
from ddp_perf.errors import HistoryError
from ddp_perf.history.records import HistoryPoint, SessionInfo, StoredCase
from ddp_perf.history.standing import Regression, State, regressions
from ddp_perf.history.store import HistoryStore
from ddp_perf.history.trend import CaseHistory, case_history, newest_work
from ddp_perf.render.model import Status

_FIGURES = tuple(metric.name for metric in METRICS)  # the step time first
_METRICS = (*_FIGURES, *(target.name for target in TARGETS), *EXACT)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_NAME = 100  # characters of a file's name


class CaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A case on one kind of machine, with all its metrics."""

    case: StoredCase
    histories: dict[str, CaseHistory]  # by metric, of those with a figure; the main one comes first
    regressions: tuple[Regression, ...]  # of all metrics
    newest: tuple[HistoryPoint, ...]  # of each metric that the newest session judged, worst first

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
        key = f"{self.case.accelerator} {self.case.case_id}"
        name = _UNSAFE.sub("-", key).strip(".-")[:_MOST_NAME]
        return f"{name}-{zlib.crc32(key.encode()):08x}.html"

    @property
    def standing(self) -> tuple[Status, str]:
        """The status, and a word for it."""
        states = {one.state for one in self.open}
        if State.OPEN in states:
            return Status.RED, "slower" if self._is_slower else "red"
        if State.ACKNOWLEDGED in states:
            return Status.UNDECIDED, "acknowledged"
        worst = self.newest[0].figure.verdict if self.newest else None
        if worst is None:
            return Status.UNTESTED, "not judged"
        return Status.GREEN if worst.outcome.is_good else Status.UNDECIDED, worst.outcome.value

    @property
    def _is_slower(self) -> bool:
        return any(one.verdict.outcome.is_slower for one in self.open)


class SiteViews(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a site."""

    source: str  # the history's name, without a password
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
    order = list(Status)
    found.sort(key=lambda one: order.index(one.standing[0]))
    return SiteViews(source=store.name, cases=tuple(found), audits=tuple(store.audits()))


def _views(store: HistoryStore, works: Sequence[StoredCase]) -> Iterator[CaseView]:
    """Yield the view of the work that was measured last, if it has a session."""
    main = newest_work(store.series(case, STEP_TIME.name) for case in works)
    if not main:
        return
    every = {name: store.series(main[0].case, name) for name in _METRICS}
    series = {name: one for name, one in every.items() if one.sessions}
    last = main[0].sessions[-1].session
    newest = [one.sessions[-1] for one in series.values() if one.sessions[-1].session == last]
    yield CaseView(
        case=main[0].case,
        histories={name: case_history(series[name]) for name in _FIGURES if name in series},
        regressions=tuple(regressions(series.values())),
        newest=tuple(sorted(filter(_is_judged, newest), key=_severity)),
    )


def _is_judged(point: HistoryPoint) -> bool:
    return point.figure.verdict is not None


def _severity(point: HistoryPoint) -> int:
    assert point.figure.verdict is not None  # it is judged
    return point.figure.verdict.outcome.severity
