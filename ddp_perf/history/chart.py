"""The chart of a case's history: its sessions by verdict, the levels and the changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
_COMMIT = 10  # digits of a commit
_WHEN = alt.X("date:T", title=None)


def history_chart(history: CaseHistory) -> Chart:
    """Draw the figures over the date, the level found, and the sessions between two levels."""
    series = history.series
    sound = series.sound()
    levels = history.trend.levels if history.trend else ()
    level_of = dict(zip(map(id, sound), levels, strict=bool(levels)))
    rows = _rows(series.sessions, series.metric, level_of)
    moves = [
        {"before": _minute(found.before), "after": _minute(found.after), "change": text}
        for found in history.ranges
        for since in [f"from {_day(sound[found.change.first].session)}"]
        for text in [describe_change(found.change, since)]
    ]
    level = rows.transform_filter("isValid(datum.level)").mark_line(color=GREY, clip=True)
    launches = rows.mark_rule(color=BLUE, opacity=0.3, clip=True)
    layers = [
        level.encode(_WHEN, alt.Y("level:Q")),
        launches.encode(_WHEN, alt.Y("low:Q"), alt.Y2("high")),
        _sessions(rows, series.metric),
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
    return titled(layered(_sessions(_rows(sessions, metric, {}), metric)), title)


def _sessions(rows: alt.Chart, metric: str) -> alt.Chart:
    names, marks = list(_MARKS), zip(*_MARKS.values(), strict=True)
    colours, shapes = (alt.Scale(domain=names, range=list(one)) for one in marks)
    label = f"{metric_title(metric)}, {unit_of(metric)[0]}"
    y = alt.Y("value:Q", title=label, scale=alt.Scale(zero=False))
    return zoomed(
        rows.mark_point().encode(
            _WHEN,
            y,
            color=alt.Color("verdict:N", scale=colours, title=None),
            shape=alt.Shape("verdict:N", scale=shapes, title=None),
            tooltip=tips("date:T", "verdict:N", "commit:N", "value:Q"),
        )
    )


def _rows(
    sessions: Sequence[HistoryPoint], metric: str, level_of: Mapping[int, float]
) -> alt.Chart:
    """Return the figures of all layers; ``level_of`` has the level of a sound session by its id."""
    _, scale = unit_of(metric)
    shown = [s for s in sessions if s.figure.value is not None and not s.session.injections]
    return points(_row(session, scale, level_of.get(id(session))) for session in shown)


def _row(session: HistoryPoint, scale: float, level: float | None) -> Point:
    figure, info, verdict = session.figure, session.session, session.figure.verdict
    outcome = verdict.outcome.value if verdict else "session"
    kind = outcome if outcome in _MARKS else "session"
    low, high = (bound(figure.launches, default=figure.value) for bound in (min, max))
    figures = {"value": figure.value, "low": low, "high": high, "level": level}
    return {
        "date": _minute(info),
        **{name: one and float(f"{scale * one:.5g}") for name, one in figures.items()},
        "verdict": kind if figure.is_sound else Outcome.INVALID.value,
        "commit": (info.environment.commit or "")[:_COMMIT],
    }


def _minute(info: SessionInfo) -> str:
    return f"{info.date[:16]}Z"  # else a browser takes it for its own time


def _day(info: SessionInfo) -> str:
    return info.date[:10]
