"""The chart of a case's history: its sessions by verdict, the levels and the changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import HistoryPoint, SessionInfo
from ddp_perf.history.text import describe_change, unit_of
from ddp_perf.history.trend import CaseHistory
from ddp_perf.render.chart import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    Chart,
    Point,
    layered,
    points,
    tips,
    titled,
    zoomed,
)

# A verdict has a shape and a colour: colour alone is hard to see for some readers.
_MARKS = {
    "session": (BLUE, "circle"),
    Outcome.REGRESSION.value: (RED, "triangle-down"),
    Outcome.SUSPECT.value: (ORANGE, "diamond"),
    Outcome.INVALID.value: (GREY, "cross"),
}
_WHEN = alt.X("date:T", title=None)


def history_chart(history: CaseHistory) -> Chart:
    """Draw the figures over the date, the level found, and the sessions between two levels."""
    series = history.series
    sound, (_, scale) = series.sound(), unit_of(series.metric)
    levels = history.trend.levels if history.trend else ()
    line = points(
        {"date": session.session.date, "level": scale * level}
        for session, level in zip(sound, levels, strict=bool(levels))
    )
    moves = [
        {"before": found.before.date, "after": found.after.date, "change": text}
        for found in history.ranges
        for since in [f"from {_day(sound[found.change.first].session)}"]
        for text in [describe_change(found.change, since)]
    ]
    found = tips("change:N")
    layers = [
        points(moves)
        .mark_rect(color=RED, opacity=0.15)
        .encode(alt.X("before:T", title=None), alt.X2("after"), tooltip=found),
        line.mark_line(color=GREY).encode(_WHEN, alt.Y("level:Q")),
        _sessions(series.sessions, series.metric),
    ]
    title = f"{series.case.case_id} on {series.case.accelerator}"
    below = ["line: the level found", *(move["change"] for move in moves)]
    return titled(layered(*layers), title, *below)


def sessions_chart(sessions: Sequence[HistoryPoint], metric: str) -> Chart:
    """Draw a metric in each session. The axis does not start at 0: small changes matter."""
    title = f"{metric_title(metric).capitalize()} of the last {len(sessions)} sessions"
    return titled(layered(_sessions(sessions, metric)), title)


def _sessions(sessions: Sequence[HistoryPoint], metric: str) -> alt.Chart:
    unit, scale = unit_of(metric)
    shown = points(_points(sessions, scale))
    names, marks = list(_MARKS), zip(*_MARKS.values(), strict=True)
    colours, shapes = (alt.Scale(domain=names, range=list(one)) for one in marks)
    label = f"{metric_title(metric)}, {unit}"
    y = alt.Y("value:Q", title=label, scale=alt.Scale(zero=False))
    return zoomed(
        shown.mark_point().encode(
            _WHEN,
            y,
            color=alt.Color("verdict:N", scale=colours, title=None),
            shape=alt.Shape("verdict:N", scale=shapes, title=None),
            tooltip=tips("date:T", "verdict:N", "commit:N", "value:Q"),
        )
    )


def _points(sessions: Sequence[HistoryPoint], scale: float) -> Iterator[Point]:
    for session in sessions:
        figure, info = session.figure, session.session
        if figure.value is None or info.injections:
            continue
        outcome = figure.verdict.outcome.value if figure.verdict else "session"
        yield {
            "date": info.date,
            "value": scale * figure.value,
            "verdict": (
                Outcome.INVALID.value
                if not figure.is_sound
                else outcome
                if outcome in _MARKS
                else "session"
            ),
            "commit": info.environment.commit,
        }


def _day(info: SessionInfo) -> str:
    return info.date[:10]
