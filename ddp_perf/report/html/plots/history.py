"""The step time of a case in each session of the history."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ddp_perf.history.records import HistoryPoint
from ddp_perf.report.html.scale import Scale
from ddp_perf.report.html.svg import Frame, picture, rect, text

_WIDTH, _HEIGHT = 400.0, 200.0
MOST_SESSIONS = 60


def session_plot(sessions: Sequence[HistoryPoint]) -> Markup:
    """Draw the step time of the last ``MOST_SESSIONS`` sessions, the newest at the right.

    At least two sessions are needed. The axis does not start at 0, because small changes matter.
    """
    shown = sessions[-MOST_SESSIONS:]
    values = [1e3 * session.figure.value for session in shown if session.figure.value is not None]
    margin = 0.1 * (max(values) - min(values)) or 0.05 * values[0]  # if all are equal, around them
    frame = Frame(
        x=Scale(low=0, high=len(shown) - 1, start=56, end=_WIDTH - 30),
        y=Scale(low=min(values) - margin, high=max(values) + margin, start=_HEIGHT - 36, end=40),
    )
    title = f"Step time of the last {len(shown)} sessions"
    first, last = shown[0].session.date[:10], shown[-1].session.date[:10]
    parts = [
        text(0, 14, title, class_="label"),
        frame.left_axis([(t, f"{t:.6g}") for t in frame.y.ticks(4)], "ms a step"),
        frame.bottom_axis([(0, first), (len(shown) - 1, last)], "session"),
    ]
    for i, (session, value) in enumerate(zip(shown, values, strict=True)):
        tip = f"{session.session.date[:10]}: {value:.4g} ms, {session.session.environment.commit}"
        parts.append(rect(frame.x(i) - 2.5, frame.y(value) - 2.5, 5, 5, "c0", tip))
    return picture(_WIDTH, _HEIGHT, title, parts)
