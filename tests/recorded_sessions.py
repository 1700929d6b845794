"""Histories of one case for tests: single sessions by their number, and whole series."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import (
    CaseRecord,
    HistoryPoint,
    RecordedFigure,
    RecordedVerdict,
    SessionInfo,
    SessionRecord,
    StoredCase,
    TimeSeries,
)
from tests.builders import make_case, make_environment


def make_recorded_session(
    case: Case, number: int, step_s: float, *, outcome: Outcome = Outcome.PASS, **environment: Any
) -> SessionRecord:
    """Return session `number` (from 0) of a case, with its own commit and date."""
    day = datetime.datetime(2026, 1, 1, 3, tzinfo=datetime.timezone.utc)
    date = (day + datetime.timedelta(days=number)).isoformat(timespec="seconds")
    launches = (step_s * 0.99, step_s, step_s * 1.01)
    figure = RecordedFigure(
        metric="step_time",
        value=step_s,
        launches=launches,
        verdict=RecordedVerdict(outcome=outcome, reason="because"),
    )
    return SessionRecord(
        info=SessionInfo(
            suite=case.suite,
            tier=case.tier,
            date=date,
            started=date,
            environment=make_environment(**{"commit": f"{number:012x}", **environment}),
        ),
        cases=(CaseRecord(case_id=case.id, work=case.work(), figures=(figure,)),),
    )


def make_series(
    values: Sequence[float],
    *,
    case: Case | None = None,
    key: int = 1,
    outcomes: Mapping[int, Outcome] | None = None,
    injected: Collection[int] = (),
    **environment: Callable[[int], Any],
) -> TimeSeries:
    """Return a series with a session for each value.

    Each value of `environment` is a function of the session's number.
    """
    case = case or make_case()
    sessions = []
    for number, value in enumerate(values):
        where = {name: of(number) for name, of in environment.items()}
        outcome = (outcomes or {}).get(number, Outcome.PASS)
        record = make_recorded_session(case, number, value, outcome=outcome, **where)
        info = record.info
        if number in injected:
            info = msgspec.structs.replace(info, injections=("compute:5%",))
        sessions.append(HistoryPoint(session=info, figure=record.cases[0].figures[0]))
    stored = StoredCase(key=key, accelerator="cpu-some-2c-host", case_id=case.id, work=case.work())
    return TimeSeries(case=stored, metric="step_time", sessions=tuple(sessions))


LEVEL, SLOW = 0.010, 0.012


def make_judged_series(
    *sessions: tuple[float, Outcome],
    acknowledged: Mapping[int, str] | None = None,
    injected: Collection[int] = (),
    metric: str = "step_time",
    **environment: Callable[[int], Any],
) -> TimeSeries:
    """Return sessions of these figures and outcomes, judged by a level of 10 ms.

    `acknowledged` has the reason of each session whose regression was expected.
    """
    outcomes = dict(enumerate(outcome for _, outcome in sessions))
    values = [value for value, _ in sessions]
    series = make_series(values, outcomes=outcomes, injected=injected, **environment)
    exact: dict[str, Any] = {"value": None} if metric == "structure" else {"baseline": LEVEL}
    points = []
    for number, point in enumerate(series.sessions):
        figure = point.figure
        found: dict[str, Any] = {"acknowledged": (acknowledged or {}).get(number)}
        if figure.value is not None and metric != "structure":
            ratio = figure.value / LEVEL
            found |= {"ratio": ratio, "interval": (ratio - 0.02, ratio + 0.02)}
        verdict = msgspec.structs.replace(figure.verdict, **found)
        figure = msgspec.structs.replace(figure, verdict=verdict, metric=metric, **exact)
        points.append(msgspec.structs.replace(point, figure=figure))
    return msgspec.structs.replace(series, sessions=tuple(points), metric=metric)


def stepped(at: int = 20, sessions: int = 40, ratio: float = 1.05) -> list[float]:
    """Return step times of 10 ms that vary by 0.2 %, and are `ratio` times as long from `at` on."""
    values = 0.01 * np.exp(np.random.default_rng(1).normal(0, 0.002, sessions))
    values[at:] *= ratio
    slower: list[float] = values.tolist()
    return slower
