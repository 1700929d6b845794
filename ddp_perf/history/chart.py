"""The chart of a case's history: its sessions by verdict, the levels and the changes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

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
from ddp_perf.render.units import change_range

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
    series, scale = history.series, unit_of(history.series.metric)[1]
    sound = series.sound()
    levels = history.trend.levels if history.trend else ()
    line = points(
        {"date": session.session.date, "level": f"{scale * level:.5g}"}
        for session, level in zip(sound, levels, strict=bool(levels))
    )
    moves = [
        {"before": found.before.date, "after": found.after.date, "change": text}
        for found in history.ranges
        for since in [f"from {_day(sound[found.change.first].session)}"]
        for text in [describe_change(found.change, since)]
    ]
    layers = [
        line.mark_line(color=GREY, clip=True).encode(_WHEN, alt.Y("level:Q")),
        _launches(series.sessions, scale),
        _sessions(series.sessions, series.metric),
    ]
    if moves:  # a layer without a mark has no name for a reader who hears the chart
        shaded = points(moves).mark_rect(color=RED, opacity=0.15, clip=True)
        place = alt.X("before:T", title=None), alt.X2("after")
        layers.insert(0, shaded.encode(*place, tooltip=tips("change:N")))
    title = f"{metric_title(series.metric).capitalize()} of {len(series.sessions):,} sessions"
    below = [
        "bar: the launches of a session; line: the level found",
        *(move["change"] for move in moves),
    ]
    return titled(layered(*layers), title, *below)


def sessions_chart(sessions: Sequence[HistoryPoint], metric: str) -> Chart:
    """Draw a metric in each session. The axis does not start at 0: small changes matter."""
    title = f"{metric_title(metric).capitalize()} of the last {len(sessions)} sessions"
    return titled(layered(_sessions(sessions, metric)), title)


def _sessions(sessions: Sequence[HistoryPoint], metric: str) -> alt.Chart:
    unit, scale = unit_of(metric)
    shown = points(map(functools.partial(_point, scale=scale), _shown(sessions)))
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
            tooltip=tips("date:T", "verdict:N", "change:N", "commit:N", "torch:N", "value:Q"),
        )
    )


def _launches(sessions: Sequence[HistoryPoint], scale: float) -> alt.Chart:
    rows = (
        {
            "date": session.session.date,
            "low": f"{scale * min(session.figure.launches):.5g}",
            "high": f"{scale * max(session.figure.launches):.5g}",
        }
        for session in _shown(sessions)
        if len(session.figure.launches) > 1
    )
    bars = points(rows).mark_rule(color=BLUE, opacity=0.3, clip=True)
    drawn: alt.Chart = bars.encode(_WHEN, alt.Y("low:Q"), alt.Y2("high"))
    return drawn


def _shown(sessions: Iterable[HistoryPoint]) -> Iterator[HistoryPoint]:
    for session in sessions:
        if session.figure.value is not None and not session.session.injections:
            yield session


def _point(session: HistoryPoint, scale: float) -> Point:
    figure, info, verdict = session.figure, session.session, session.figure.verdict
    assert figure.value is not None  # it is shown
    outcome = verdict.outcome.value if verdict else "session"
    kind = outcome if outcome in _MARKS else "session"
    return {
        "date": info.date,
        "value": f"{scale * figure.value:.5g}",
        "verdict": kind if figure.is_sound else Outcome.INVALID.value,
        "change": change_range(verdict.interval) if verdict and verdict.interval else "",
        "commit": info.environment.commit or "",
        "torch": info.environment.torch,
    }


def _day(info: SessionInfo) -> str:
    return info.date[:10]
