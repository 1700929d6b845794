"""The pairs of a duel: their ratios in order of time, each pair as a line, and all steps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from markupsafe import Markup

from ddp_perf.core.duel import PairedVerdict
from ddp_perf.report.html.scale import Scale, coordinate
from ddp_perf.report.html.svg import Frame, element, line, path, picture, rect, text
from ddp_perf.stats.duel.pairs_apart import without_apart
from ddp_perf.stats.interval import mean_estimate

_WIDTH, _HEIGHT = 400.0, 230.0
_TOP, _BOTTOM = 44.0, 36.0
_LEFT = 48.0
_WIDEST = 4.0  # tolerances from the ratio 1 that are shown at least as far as they go
_SLOW = 2.0  # tolerances above the median of its side: a slow launch
_CURVE = 60  # points of a distribution


class PlottedPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair with one figure of each side."""

    a: float
    b: float
    tip: str  # both figures in words


def slow_sides(pairs: Sequence[PlottedPair], tolerance: float) -> list[str]:
    """Return for each pair the sides whose launch was slow: "", "A", "B" or "A and B".

    A slow launch is by two tolerances above the median of its side.
    """
    most = 1 + _SLOW * tolerance
    limits = [
        most * statistics.median(values)
        for values in ([pair.a for pair in pairs], [pair.b for pair in pairs])
    ]
    return [
        " and ".join(
            side
            for side, value, limit in zip("AB", (pair.a, pair.b), limits, strict=True)
            if value > limit
        )
        for pair in pairs
    ]


def ratio_plot(pairs: Sequence[PlottedPair], tolerance: float, verdict: PairedVerdict) -> Markup:
    """Draw the ratio of each pair in order of time, with the running mean and its 95 % interval.

    A pair beyond the axis is a triangle at its edge. Pairs that the verdict sets apart are not in
    the mean either.
    """
    percents = [100 * (pair.b / pair.a - 1) for pair in pairs]
    interval = verdict.interval
    limits = _limits(percents, tolerance, interval)
    frame = Frame(
        x=Scale(low=0.5, high=len(pairs) + 1.0, start=_LEFT, end=_WIDTH - 14),
        y=Scale(low=limits[0], high=limits[1], start=_HEIGHT - _BOTTOM, end=_TOP),
    )
    parts = [
        text(0, 14, "Each pair in order of time", class_="label"),
        _tolerance_band(frame, tolerance),
        frame.left_axis([(t, f"{t:+g}" if t else "0") for t in frame.y.ticks()], "B against A, %"),
        frame.bottom_axis(_whole_ticks(frame.x, len(pairs)), "pair"),
        *_running(frame, pairs, verdict.apart),
        line(frame.x.start, frame.y(0), frame.x.end, frame.y(0), "reference"),
    ]
    slow = slow_sides(pairs, tolerance)
    for number, (pair, percent, sides) in enumerate(zip(pairs, percents, slow, strict=True), 1):
        tip = f"pair {number}: {percent:+.1f} %, {pair.tip}"
        tip += f"; slow: {sides}" if sides else ""
        parts.append(_mark(frame, number, percent, "c3" if sides else "c0", tip))
    if interval is not None:
        low, high = (_within(100 * (end - 1), frame.y) for end in interval)
        x = frame.x.end - 2
        tip = f"interval of the verdict: {interval[0]:.3f} to {interval[1]:.3f}"
        parts.append(rect(x - 2, frame.y(high), 4, frame.y(low) - frame.y(high), "c4", tip))
    return picture(_WIDTH, _HEIGHT, "Ratio of each pair in order of time", parts)


def _limits(
    percents: Sequence[float], tolerance: float, verdict: tuple[float, float] | None
) -> tuple[float, float]:
    """Return the ends of the axis: the middle nine tenths of the pairs, and all that is judged."""
    low, high = np.quantile(percents, (0.05, 0.95)).tolist()
    ends = [100 * (end - 1) for end in verdict or ()]
    judged = [-150 * tolerance, 150 * tolerance, *ends]
    least, most = min(low, *judged), max(high, *judged)
    reach = 100 * _WIDEST * tolerance  # what lies nearer is never cut off
    near = [percent for percent in percents if abs(percent) <= reach]
    least, most = min(least, *near, 0.0), max(most, *near, 0.0)
    margin = 0.05 * (most - least)
    return least - margin, most + margin


def _tolerance_band(frame: Frame, tolerance: float) -> Markup:
    top, bottom = frame.y(100 * tolerance), frame.y(-100 * tolerance)
    tip = f"EQUIVALENT: ± {tolerance:.1%}"
    return rect(frame.x.start, top, frame.x.end - frame.x.start, bottom - top, "within", tip)


def _running(frame: Frame, pairs: Sequence[PlottedPair], apart: int) -> list[Markup]:
    """Draw the mean of the pairs so far, from the second one on, within its interval."""
    top, bottom, middle = [], [], []
    logs = np.log([pair.b / pair.a for pair in pairs])
    for count in range(2, len(pairs) + 1):
        found = mean_estimate(without_apart(logs[:count], min(apart, count // 3)).tolist())
        if found.low is None or found.high is None:
            continue
        x = coordinate(frame.x(count))
        low, mean, high = (
            coordinate(frame.y(_within(100 * math.expm1(min(log, 10.0)), frame.y)))
            for log in (found.low, found.value, found.high)
        )
        bottom.append(f"{x} {low}")
        middle.append(f"{x} {mean}")
        top.append(f"{x} {high}")
    if not middle:
        return []
    return [
        path(f"M{'L'.join([*top, *reversed(bottom)])}z", "running"),
        path(f"M{'L'.join(middle)}", "measured"),
    ]


def _mark(frame: Frame, number: int, percent: float, class_: str, tip: str) -> Markup:
    """Draw a pair as a square; as a triangle at the edge if it lies beyond the axis."""
    x, shown = frame.x(number), _within(percent, frame.y)
    if shown == percent:
        return rect(x - 3, frame.y(percent) - 3, 6, 6, class_, tip)
    y, away = frame.y(shown), -6 if percent > shown else 6
    d = f"M{coordinate(x - 4)} {coordinate(y)}h8L{coordinate(x)} {coordinate(y + away)}z"
    return element("path", element("title", tip), d=d, class_=class_)


def _within(value: float, scale: Scale) -> float:
    return min(max(value, scale.low), scale.high)


def _whole_ticks(scale: Scale, most: int) -> list[tuple[float, str]]:
    return [(t, f"{t:.0f}") for t in scale.ticks() if t == int(t) and 1 <= t <= most]


def line_plot(pairs: Sequence[PlottedPair], unit: str, aa: Sequence[float]) -> Markup:
    """Draw each pair as a line from side A to side B. ``aa``: launches of A before the pairs."""
    values = [value for pair in pairs for value in (pair.a, pair.b)] + list(aa)
    margin = 0.06 * (max(values) - min(values)) or 0.05 * max(values)  # if all are equal
    frame = Frame(
        x=Scale(low=0, high=1, start=140, end=_WIDTH - 90),
        y=Scale(low=min(values) - margin, high=max(values) + margin, start=_HEIGHT - 36, end=_TOP),
    )
    left, right = frame.x(0), frame.x(1)
    parts = [text(0, 14, "Each pair from A to B", class_="label"), _wide_axis(frame, unit)]
    for pair in pairs:
        grew = "rising" if pair.b > pair.a else "falling"
        parts.append(line(left, frame.y(pair.a), right, frame.y(pair.b), grew))
    for pair in pairs:
        parts += [_dot(x, frame.y(v), "c0", pair.tip) for x, v in ((left, pair.a), (right, pair.b))]
    parts += [_dot(left - 70, frame.y(value), "c5", f"A/A launch: {value:.4g}") for value in aa]
    parts += _side_name(frame, left, "A", [pair.a for pair in pairs], -10, "end")
    parts += _side_name(frame, right, "B", [pair.b for pair in pairs], 10, "start")
    if aa:
        parts.append(text(left - 70, _HEIGHT - 18, "A alone", "middle", "note"))
    return picture(_WIDTH, _HEIGHT, "Each pair from side A to side B", parts)


def _side_name(
    frame: Frame, x: float, side: str, values: Sequence[float], gap: float, anchor: str
) -> list[Markup]:
    """Draw the name of a side, and its median."""
    y = frame.y(statistics.median(values))
    return [
        text(x, _HEIGHT - 18, side, "middle", "value"),
        line(x - 7, y, x + 7, y, "median"),
        text(x + gap, y + 4, f"{statistics.median(values):.4g}", anchor, "value"),
    ]


def _wide_axis(frame: Frame, unit: str) -> Markup:
    """Draw the axis of the figures at the left edge of the picture."""
    wide = Frame(
        x=Scale(low=0, high=1, start=_LEFT, end=_WIDTH - 12),
        y=frame.y,
    )
    return wide.left_axis([(t, f"{t:.6g}") for t in frame.y.ticks()], unit)


def _dot(x: float, y: float, class_: str, tip: str) -> Markup:
    return rect(x - 2.5, y - 2.5, 5, 5, class_, tip)


def step_curves(a_ms: Sequence[float], b_ms: Sequence[float]) -> Markup:
    """Draw for both sides the share of all steps that are not longer than a time.

    The axis ends at the 99th percentile: a few stalls would hide the rest.
    """
    both = [*a_ms, *b_ms]
    low, high = min(both), max(float(np.quantile(side, 0.99)) for side in (a_ms, b_ms))
    margin = 0.04 * (high - low) or 0.05 * high
    frame = Frame(
        x=Scale(low=low - margin, high=high + margin, start=_LEFT, end=_WIDTH - 14),
        y=Scale(low=0, high=100, start=_HEIGHT - _BOTTOM, end=_TOP),
    )
    parts = [
        text(0, 14, "All timed steps", class_="label"),
        frame.left_axis([(t, f"{t:g}") for t in (0, 25, 50, 75, 100)], "% of the steps within"),
        frame.bottom_axis([(t, f"{t:.6g}") for t in frame.x.ticks()], "ms a step"),
    ]
    middles = [statistics.median(side) for side in (a_ms, b_ms)]
    for place, (side, values) in enumerate((("A", a_ms), ("B", b_ms))):
        parts.append(_curve(frame, values, f"side-{side.lower()}"))
        is_left = middles[place] < middles[1 - place] or (middles[0] == middles[1] and side == "A")
        at, anchor = (-8, "end") if is_left else (8, "start")
        parts.append(text(frame.x(middles[place]) + at, frame.y(50) + 4, side, anchor, "value"))
    return picture(_WIDTH, _HEIGHT, "Distribution of all timed steps", parts)


def _curve(frame: Frame, values: Sequence[float], class_: str) -> Markup:
    shares = np.linspace(0.0, 0.99, _CURVE)
    marks = np.quantile(values, shares).tolist()
    points = (
        f"{coordinate(frame.x(_within(mark, frame.x)))} {coordinate(frame.y(100 * share))}"
        for mark, share in zip(marks, shares.tolist(), strict=True)
    )
    return path(f"M{'L'.join(points)}", class_)
