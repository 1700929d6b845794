"""The gate's power curve: measured points, and dashed lines from a model."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from ddp_perf.report.html.scale import Scale, coordinate
from ddp_perf.report.html.svg import Frame, line, path, picture, rect, text
from ddp_perf.selftest.curve import Modelled, Point, PowerCurve
from ddp_perf.selftest.text import interval_text, model_text
from ddp_perf.stats.rule.comparison import POWER

_WIDTH, _HEIGHT = 400.0, 280.0
_MOST = 0.3  # the largest slow-down drawn
_LETTERS = "ABC"  # the names of the modelled lines
_GRID = np.linspace(0.0, _MOST, 301)


def legend(curve: PowerCurve) -> list[str]:
    """Return the text of each dashed line."""
    return [
        f"{letter}: {model_text(modelled)}"
        for letter, modelled in zip(_LETTERS, curve.modelled, strict=False)
    ]


def power_plot(curve: PowerCurve) -> Markup:
    """Draw the share of detected slow-downs against their size, with 95 % intervals of both."""
    frame = Frame(
        x=Scale(low=-2, high=100 * _MOST, start=40, end=_WIDTH - 24),
        y=Scale(low=0, high=100, start=_HEIGHT - 36, end=40),
    )
    parts = [
        frame.left_axis([(t, f"{t} %") for t in range(0, 101, 20)], "found, of trials"),
        frame.bottom_axis([(t, f"{t} %") for t in range(0, 31, 5)], "observed slow-down"),
        line(frame.x.start, frame.y(100 * POWER), frame.x.end, frame.y(100 * POWER), "reference"),
        text(frame.x.end, frame.y(100 * POWER) + 12, "90 %", "end", "note"),
        frame.vertical(100 * curve.tolerance, "reference", "tolerance", "start"),
    ]
    for i, (letter, modelled) in enumerate(zip(_LETTERS, curve.modelled, strict=False)):
        parts += _modelled(frame, modelled, letter, 80 - 25 * i)
    for point in curve.points:
        parts += _point(frame, point)
    return picture(_WIDTH, _HEIGHT, "Power of the gate on this machine", parts)


def _modelled(frame: Frame, modelled: Modelled, letter: str, at: float) -> list[Markup]:
    """Draw one dashed line. Its letter is placed where the line crosses ``at`` per cent."""
    found = 100 * modelled.model.power(_GRID)
    places = [(frame.x(100 * x), frame.y(y)) for x, y in zip(_GRID, found.tolist(), strict=True)]
    marks = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in places)
    x, y = places[int(np.argmax(found >= min(at, found.max())))]
    return [path(f"M{marks}", "ideal"), text(x + 5, y + 4, letter, class_="value")]


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
