"""Plots of the report's page, as SVG."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from markupsafe import Markup

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.verdict import PairedVerdict
from ddp_perf.history.records import HistoryPoint
from ddp_perf.render.units import prefixed_number
from ddp_perf.report.figures import SHOWN, PlotSeries, term_values
from ddp_perf.report.html.svg import (
    Frame,
    Scale,
    coordinate,
    element,
    line,
    path,
    picture,
    rect,
    text,
)
from ddp_perf.report.rows import CaseRow
from ddp_perf.selftest.curve import MOSTLY, Point, PowerCurve, interval_text
from ddp_perf.stats.interval import mean_estimate
from ddp_perf.stats.pairs import without_apart

# The pairs of a duel: their ratios in order of time, each pair as a line, and all steps.


_PAIRS_WIDTH, _PAIRS_HEIGHT = 400.0, 230.0
_PAIRS_TOP, _BOTTOM = 44.0, 36.0
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
        x=Scale(low=0.5, high=len(pairs) + 1.0, start=_LEFT, end=_PAIRS_WIDTH - 14),
        y=Scale(low=limits[0], high=limits[1], start=_PAIRS_HEIGHT - _BOTTOM, end=_PAIRS_TOP),
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
    return picture(_PAIRS_WIDTH, _PAIRS_HEIGHT, "Ratio of each pair in order of time", parts)


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
        x=Scale(low=0, high=1, start=140, end=_PAIRS_WIDTH - 90),
        y=Scale(
            low=min(values) - margin,
            high=max(values) + margin,
            start=_PAIRS_HEIGHT - 36,
            end=_PAIRS_TOP,
        ),
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
        parts.append(text(left - 70, _PAIRS_HEIGHT - 18, "A alone", "middle", "note"))
    return picture(_PAIRS_WIDTH, _PAIRS_HEIGHT, "Each pair from side A to side B", parts)


def _side_name(
    frame: Frame, x: float, side: str, values: Sequence[float], gap: float, anchor: str
) -> list[Markup]:
    """Draw the name of a side, and its median."""
    y = frame.y(statistics.median(values))
    return [
        text(x, _PAIRS_HEIGHT - 18, side, "middle", "value"),
        line(x - 7, y, x + 7, y, "median"),
        text(x + gap, y + 4, f"{statistics.median(values):.4g}", anchor, "value"),
    ]


def _wide_axis(frame: Frame, unit: str) -> Markup:
    """Draw the axis of the figures at the left edge of the picture."""
    wide = Frame(
        x=Scale(low=0, high=1, start=_LEFT, end=_PAIRS_WIDTH - 12),
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
        x=Scale(low=low - margin, high=high + margin, start=_LEFT, end=_PAIRS_WIDTH - 14),
        y=Scale(low=0, high=100, start=_PAIRS_HEIGHT - _BOTTOM, end=_PAIRS_TOP),
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
    return picture(_PAIRS_WIDTH, _PAIRS_HEIGHT, "Distribution of all timed steps", parts)


def _curve(frame: Frame, values: Sequence[float], class_: str) -> Markup:
    shares = np.linspace(0.0, 0.99, _CURVE)
    marks = np.quantile(values, shares).tolist()
    points = (
        f"{coordinate(frame.x(_within(mark, frame.x)))} {coordinate(frame.y(100 * share))}"
        for mark, share in zip(marks, shares.tolist(), strict=True)
    )
    return path(f"M{'L'.join(points)}", class_)


# Throughput against ranks with the ideal line; speed-up and efficiency as bars.


_SCALING_WIDTH, _SCALING_HEIGHT = 400.0, 250.0
_BAND = 16.0  # width of a baseline's band in pixels
_TICK, _VALUE = 18.0, 40.0  # width of the text of a tick, and of a figure
_SCALING_ROW, _SCALING_TOP, _SCALING_NAMES, _SCALING_VALUES = (
    20.0,
    34.0,
    150.0,
    60.0,
)  # pixels, in a chart of bars
_LETTERS = 25  # the longest name that fits beside its bar
_REFERENCES = ((0.8, "end"), (0.9, "start"))  # each with the anchor of its name


def throughput_plot(series: PlotSeries) -> Markup:
    """Draw the throughput of each number of ranks. The ideal is the first row's × ranks."""
    rows = series.rows
    first, most = rows[0], rows[-1].ranks
    ideal = _throughput(first) / first.ranks
    top = 1.12 * max([ideal * most, *(_band(row, series.tolerance)[1] for row in rows)])
    frame = Frame(
        x=Scale(low=0, high=most + 0.5, start=52, end=_SCALING_WIDTH - 34),
        y=Scale(low=0, high=top, start=_SCALING_HEIGHT - 36, end=34),
    )
    parts = [
        frame.left_axis(_named(frame.y.ticks()), f"{first.unit} a second"),
        frame.bottom_axis(_apart(rows, frame.x, _TICK), "ranks"),
        line(frame.x(0), frame.y(0), frame.x(most), frame.y(ideal * most), "ideal"),
        text(frame.x(most) - 4, frame.y(ideal * most) - 6, "ideal", "end", "note"),
    ]
    parts += [_baseline_band(row, series.tolerance, frame) for row in rows if row.baseline_level_s]
    points = [(frame.x(row.ranks), frame.y(_throughput(row))) for row in rows]
    parts.append(
        path("M" + "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points), "measured")
    )
    valued = {ranks for ranks, _ in _apart(rows, frame.x, _VALUE)}
    for row, (x, y) in zip(rows, points, strict=True):
        tip = f"{row.case}: {_throughput(row):,.0f} {row.unit}/s"
        parts.append(rect(x - 3.5, y - 3.5, 7, 7, "c0", tip))
        if row.ranks in valued:
            parts.append(text(x + 7, y + 14, prefixed_number(_throughput(row)), class_="value"))
    return picture(
        _SCALING_WIDTH, _SCALING_HEIGHT, f"Throughput against ranks: {series.name}", parts
    )


def _throughput(row: CaseRow) -> float:
    assert row.throughput is not None  # it was measured
    return row.throughput


def _band(row: CaseRow, tolerance: float) -> tuple[float, float]:
    """Return the throughput at the baseline's level ± the tolerance; without one, the row's own."""
    if row.baseline_level_s is None or row.level_s is None:
        return _throughput(row), _throughput(row)
    before = _throughput(row) * row.level_s / row.baseline_level_s
    return before / (1 + tolerance), before * (1 + tolerance)


def _baseline_band(row: CaseRow, tolerance: float, frame: Frame) -> Markup:
    low, high = _band(row, tolerance)
    tip = f"baseline ± {tolerance:.0%}: {prefixed_number(low)} to {prefixed_number(high)}"
    top, height = frame.y(high), frame.y(low) - frame.y(high)
    return rect(frame.x(row.ranks) - _BAND / 2, top, _BAND, height, "band", tip)


def _apart(rows: Sequence[CaseRow], scale: Scale, width: float) -> list[tuple[float, str]]:
    """Return the measured numbers of ranks, without those closer than ``width`` to the next one."""
    ticks: list[tuple[float, str]] = []
    for ranks in sorted({row.ranks for row in rows}, reverse=True):
        if not ticks or scale(ticks[-1][0]) - scale(ranks) > width:
            ticks.append((ranks, str(ranks)))
    return ticks


def _named(ticks: Sequence[float]) -> list[tuple[float, str]]:
    return [(tick, prefixed_number(tick)) for tick in ticks]


def efficiency_bars(rows: Sequence[CaseRow], names: Sequence[str]) -> Markup:
    """Draw the scaling efficiency of each case, with reference lines at 80 and 90 %."""
    values = [row.efficiency or 0.0 for row in rows]
    frame = _bar_frame(len(rows), max(1.0, *values))
    parts = [frame.bottom_axis([(t, f"{t:.0%}") for t in frame.x.ticks()], "efficiency")]
    for i, (value, name) in enumerate(zip(values, names, strict=True)):
        parts += _bar(frame, i, name, value, f"{value:.0%}")
    parts += [frame.vertical(at, "reference", f"{at:.0%}", side) for at, side in _REFERENCES]
    return picture(_SCALING_WIDTH, _bars_height(len(rows)), "Scaling efficiency", parts)


def speedup_bars(rows: Sequence[CaseRow], names: Sequence[str]) -> Markup:
    """Draw the speed-up over one rank. A tick on each row marks the ideal: its number of ranks."""
    values = [row.speedup or 0.0 for row in rows]
    frame = _bar_frame(len(rows), max(*(row.ranks for row in rows), *values))
    ticks = [(t, f"{t:g} ×") for t in frame.x.ticks()]
    parts = [frame.bottom_axis(ticks, "speed-up against one rank (tick: ideal)")]
    for i, (row, value, name) in enumerate(zip(rows, values, names, strict=True)):
        parts += _bar(frame, i, name, value, f"{value:.2f} ×")
        x, y = frame.x(row.ranks), _SCALING_TOP + i * _SCALING_ROW
        parts.append(line(x, y + 1, x, y + _SCALING_ROW - 3, "tick"))
    return picture(_SCALING_WIDTH, _bars_height(len(rows)), "Speed-up against one rank", parts)


def epoch_bars(rows: Sequence[CaseRow], names: Sequence[str]) -> Markup:
    """Draw the computed time of an epoch: its samples ÷ the measured throughput."""
    values = [row.epoch_s or 0.0 for row in rows]
    frame = _bar_frame(len(rows), max(values))
    parts = [frame.bottom_axis(_named(frame.x.ticks()), "seconds an epoch")]
    for i, (value, name) in enumerate(zip(values, names, strict=True)):
        parts += _bar(frame, i, name, value, f"{prefixed_number(value)} s")
    return picture(_SCALING_WIDTH, _bars_height(len(rows)), "Time of an epoch", parts)


def _bar_frame(count: int, high: float) -> Frame:
    bottom = _SCALING_TOP + count * _SCALING_ROW
    return Frame(
        x=Scale(low=0, high=high, start=_SCALING_NAMES, end=_SCALING_WIDTH - _SCALING_VALUES),
        y=Scale(low=0, high=1, start=bottom, end=_SCALING_TOP - 4),
    )


def _bars_height(count: int) -> float:
    return _SCALING_TOP + count * _SCALING_ROW + 34


def _bar(frame: Frame, row: int, name: str, value: float, shown: str) -> list[Markup]:
    y = _SCALING_TOP + row * _SCALING_ROW
    return [
        row_name(y, name),
        rect(
            frame.x(0),
            y + 3,
            frame.x(value) - frame.x(0),
            _SCALING_ROW - 7,
            "c0",
            f"{name}: {shown}",
        ),
        text(_SCALING_WIDTH - _SCALING_VALUES + 8, y + 14, shown, class_="value"),
    ]


def row_name(y: float, name: str) -> Markup:
    """Draw a name left of its bar. A long one loses its front: its end is distinctive."""
    shown = name if len(name) <= _LETTERS else f"…{name[1 - _LETTERS :]}"
    return text(_SCALING_NAMES - 6, y + 14, shown, "end")


# The distribution of step times, by launch and by rank.


_STEPS_WIDTH, _STEPS_ROW, _STEPS_TOP = 400.0, 14.0, 44.0
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """The 5, 25, 50, 75 and 95 % quantiles of the steps of one launch, or of one rank, in ms."""

    name: str
    marks: tuple[float, float, float, float, float]


def launch_boxes(measurement: Measurement) -> list[Box]:
    """Return a box for each launch, of the steps of its group: the steps that are judged."""
    return [_box(f"launch {launch.round + 1}", launch.step_s) for launch in measurement.launches]


def rank_boxes(measurement: Measurement) -> list[Box]:
    """Return a box for each rank, of its steps in all launches."""
    return [
        _box(
            f"rank {rank}",
            [s for launch in measurement.launches for s in launch.ranks[rank].step_s],
        )
        for rank in range(measurement.case.world_size)
    ]


def _box(name: str, steps_s: Sequence[float]) -> Box:
    marks = 1e3 * np.quantile(steps_s, _QUANTILES)
    return Box(name=name, marks=tuple(marks.tolist()))


def step_plot(boxes: Sequence[Box], title: str, baseline_ms: float | None) -> Markup:
    """Draw a row for each box: whiskers to 5 and 95 %, a box to 25 and 75 %, a median bar."""
    figures = [mark for box in boxes for mark in box.marks]
    figures += [] if baseline_ms is None else [baseline_ms]
    low, high = min(figures), max(figures)
    margin = 0.04 * (high - low) or 0.05 * high  # if all are equal, a little around them
    bottom = _STEPS_TOP + len(boxes) * _STEPS_ROW
    frame = Frame(
        x=Scale(low=low - margin, high=high + margin, start=66, end=_STEPS_WIDTH - 12),
        y=Scale(low=0, high=1, start=bottom, end=_STEPS_TOP - 4),
    )
    parts = [text(0, 14, title, class_="label")]
    parts.append(frame.bottom_axis([(t, f"{t:.6g}") for t in frame.x.ticks()], "ms a step"))
    parts += [
        text(60, _STEPS_TOP + (i + 0.5) * _STEPS_ROW + 4, box.name, "end")
        for i, box in enumerate(boxes)
    ]
    if baseline_ms is not None:
        parts.append(frame.vertical(baseline_ms, "reference", "baseline"))
    whiskers, middles, medians = "", "", ""
    for i, box in enumerate(boxes):
        y = _STEPS_TOP + (i + 0.5) * _STEPS_ROW
        least, quarter, median, three_quarters, most = (coordinate(frame.x(m)) for m in box.marks)
        whiskers += f"M{least} {coordinate(y)}H{most}"
        middles += f"M{quarter} {coordinate(y - 4)}H{three_quarters}v8H{quarter}z"
        medians += f"M{median} {coordinate(y - 5)}v10"
    parts += [path(whiskers, "whisker"), path(middles, "box"), path(medians, "median")]
    return picture(_STEPS_WIDTH, bottom + 34, title, parts)


# The terms of each case's step, stacked.


_TERMS_WIDTH, _TERMS_ROW, _TERMS_TOP, _TERMS_NAMES, _TERMS_VALUES = 400.0, 20.0, 10.0, 150.0, 60.0
_LETTER = 6.4  # approximate width of a letter in pixels


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """One case: its terms and its timed step."""

    name: str
    step: Decomposition
    step_s: float

    def parts(self) -> dict[str, float]:
        """Return the seconds of each name in SHOWN, but not of a term below 0: it has no length."""
        values = term_values(self.step, self.step_s)
        return {name: value for name, value in values.items() if value is not None and value > 0}


def term_plot(stacks: Sequence[Stack]) -> Markup:
    """Draw a stack for each case. Each part has its figure in a tip, and its name where it fits."""
    bottom = _TERMS_TOP + len(stacks) * _TERMS_ROW
    most = max(sum(stack.parts().values()) for stack in stacks)
    frame = Frame(
        x=Scale(low=0, high=1e3 * most, start=_TERMS_NAMES, end=_TERMS_WIDTH - _TERMS_VALUES),
        y=Scale(low=0, high=1, start=bottom, end=_TERMS_TOP),
    )
    parts = [frame.bottom_axis([(t, f"{t:g}") for t in frame.x.ticks()], "ms a step")]
    for i, stack in enumerate(stacks):
        y, at = _TERMS_TOP + i * _TERMS_ROW, 0.0
        parts.append(row_name(y, stack.name))
        for name, value in stack.parts().items():
            left, width = frame.x(1e3 * at), frame.x(1e3 * (at + value)) - frame.x(1e3 * at)
            tip = f"{stack.name}: {name} {1e3 * value:.2f} ms"
            parts.append(
                rect(left, y + 2, width, _TERMS_ROW - 5, f"c{SHOWN.index(name)} part", tip)
            )
            if width > _LETTER * len(name):
                parts.append(text(left + width / 2, y + 13.5, name, "middle", "in"))
            at += value
        parts.append(
            text(
                _TERMS_WIDTH - _TERMS_VALUES + 8,
                y + 14,
                f"{1e3 * stack.step_s:.3g} ms",
                class_="value",
            )
        )
    return picture(_TERMS_WIDTH, bottom + 34, "Where the time of a step goes", parts)


# The gate's power curve: the share that was found, by the observed slow-down.


_POWER_WIDTH, _POWER_HEIGHT = 400.0, 280.0
_MOST = 0.3  # the largest slow-down drawn


def power_plot(curve: PowerCurve) -> Markup:
    """Draw the share of detected slow-downs against their size, with 95 % intervals of both."""
    frame = Frame(
        x=Scale(low=-2, high=100 * _MOST, start=40, end=_POWER_WIDTH - 24),
        y=Scale(low=0, high=100, start=_POWER_HEIGHT - 36, end=40),
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
    return picture(_POWER_WIDTH, _POWER_HEIGHT, "Power of the gate on this machine", parts)


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


# The step time of a case in each session of the history.


_HISTORY_WIDTH, _HISTORY_HEIGHT = 400.0, 200.0
MOST_SESSIONS = 60


def session_plot(sessions: Sequence[HistoryPoint]) -> Markup:
    """Draw the step time of the last ``MOST_SESSIONS`` sessions, the newest at the right.

    At least two sessions are needed. The axis does not start at 0, because small changes matter.
    """
    shown = sessions[-MOST_SESSIONS:]
    values = [1e3 * session.figure.value for session in shown if session.figure.value is not None]
    margin = 0.1 * (max(values) - min(values)) or 0.05 * values[0]  # if all are equal, around them
    frame = Frame(
        x=Scale(low=0, high=len(shown) - 1, start=56, end=_HISTORY_WIDTH - 30),
        y=Scale(
            low=min(values) - margin, high=max(values) + margin, start=_HISTORY_HEIGHT - 36, end=40
        ),
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
    return picture(_HISTORY_WIDTH, _HISTORY_HEIGHT, title, parts)
