"""The gate's power curve: the share that was found, by the observed slow-down."""

from __future__ import annotations

from markupsafe import Markup

from ddp_perf.report.html.scale import Scale
from ddp_perf.report.html.svg import Frame, line, picture, rect, text
from ddp_perf.selftest.curve import MOSTLY, Point, PowerCurve
from ddp_perf.selftest.text import interval_text

_WIDTH, _HEIGHT = 400.0, 280.0
_MOST = 0.3  # the largest slow-down drawn


def power_plot(curve: PowerCurve) -> Markup:
    """Draw the share of detected slow-downs against their size, with 95 % intervals of both."""
    frame = Frame(
        x=Scale(low=-2, high=100 * _MOST, start=40, end=_WIDTH - 24),
        y=Scale(low=0, high=100, start=_HEIGHT - 36, end=40),
    )
    parts = [
        frame.left_axis([(t, f"{t} %") for t in range(0, 101, 20)], "found, of trials"),
        frame.bottom_axis([(t, f"{t} %") for t in range(0, 31, 5)], "observed slow-down"),
        line(frame.x.start, frame.y(100 * MOSTLY), frame.x.end, frame.y(100 * MOSTLY), "reference"),
        text(frame.x.end, frame.y(100 * MOSTLY) + 12, f"{100 * MOSTLY:.0f} %", "end", "note"),
        frame.vertical(100 * curve.tolerance, "reference", "tolerance", "start"),
    ]
    for point in curve.points:
        parts += _point(frame, point)
    return picture(_WIDTH, _HEIGHT, "Power of the gate on this machine", parts)


def _point(frame: Frame, point: Point) -> list[Markup]:
    found = point.found
    if found.value is None:
        return []
    value, (low, high) = 0.0, (0.0, 0.0)
    if point.slow_down is not None:
        value, (low, high) = point.slow_down.value, point.slow_down.interval
    x, y = frame.x(100 * value), frame.y(100 * found.value)
    tip = (
        f"{point.percent} % injected: found {found.found} of {found.trials},"
        f" 95 % interval {interval_text(found)}"
    )
    return [
        line(frame.x(100 * low), y, frame.x(100 * high), y, "whisker"),
        line(x, frame.y(100 * found.interval[0]), x, frame.y(100 * found.interval[1]), "whisker"),
        rect(x - 3.5, y - 3.5, 7, 7, "c0", tip),
    ]
