"""Throughput against ranks with the ideal line; speed-up and efficiency as bars."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from ddp_perf.render.units import prefixed_number
from ddp_perf.report.curves import PlotSeries
from ddp_perf.report.html.scale import Scale, coordinate
from ddp_perf.report.html.svg import Frame, line, path, picture, rect, text
from ddp_perf.report.rows import CaseRow

_WIDTH, _HEIGHT = 400.0, 250.0
_BAND = 16.0  # width of a baseline's band in pixels
_TICK, _VALUE = 18.0, 40.0  # width of the text of a tick, and of a figure
_ROW, _TOP, _NAMES, _VALUES = 20.0, 34.0, 150.0, 60.0  # pixels, in a chart of bars
_LETTERS = 25  # the longest name that fits beside its bar
_REFERENCES = ((0.8, "end"), (0.9, "start"))  # each with the anchor of its name


def throughput_plot(series: PlotSeries) -> Markup:
    """Draw the throughput of each number of ranks. The ideal is the first row's × ranks."""
    rows = series.rows
    first, most = rows[0], rows[-1].ranks
    ideal = _throughput(first) / first.ranks
    top = 1.12 * max([ideal * most, *(_band(row, series.tolerance)[1] for row in rows)])
    frame = Frame(
        x=Scale(low=0, high=most + 0.5, start=52, end=_WIDTH - 34),
        y=Scale(low=0, high=top, start=_HEIGHT - 36, end=34),
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
    return picture(_WIDTH, _HEIGHT, f"Throughput against ranks: {series.name}", parts)


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
    return picture(_WIDTH, _bars_height(len(rows)), "Scaling efficiency", parts)


def speedup_bars(rows: Sequence[CaseRow], names: Sequence[str]) -> Markup:
    """Draw the speed-up over one rank. A tick on each row marks the ideal: its number of ranks."""
    values = [row.speedup or 0.0 for row in rows]
    frame = _bar_frame(len(rows), max(*(row.ranks for row in rows), *values))
    ticks = [(t, f"{t:g} ×") for t in frame.x.ticks()]
    parts = [frame.bottom_axis(ticks, "speed-up against one rank (tick: ideal)")]
    for i, (row, value, name) in enumerate(zip(rows, values, names, strict=True)):
        parts += _bar(frame, i, name, value, f"{value:.2f} ×")
        x, y = frame.x(row.ranks), _TOP + i * _ROW
        parts.append(line(x, y + 1, x, y + _ROW - 3, "tick"))
    return picture(_WIDTH, _bars_height(len(rows)), "Speed-up against one rank", parts)


def epoch_bars(rows: Sequence[CaseRow], names: Sequence[str]) -> Markup:
    """Draw the computed time of an epoch: its samples ÷ the measured throughput."""
    values = [row.epoch_s or 0.0 for row in rows]
    frame = _bar_frame(len(rows), max(values))
    parts = [frame.bottom_axis(_named(frame.x.ticks()), "seconds an epoch")]
    for i, (value, name) in enumerate(zip(values, names, strict=True)):
        parts += _bar(frame, i, name, value, f"{prefixed_number(value)} s")
    return picture(_WIDTH, _bars_height(len(rows)), "Time of an epoch", parts)


def _bar_frame(count: int, high: float) -> Frame:
    bottom = _TOP + count * _ROW
    return Frame(
        x=Scale(low=0, high=high, start=_NAMES, end=_WIDTH - _VALUES),
        y=Scale(low=0, high=1, start=bottom, end=_TOP - 4),
    )


def _bars_height(count: int) -> float:
    return _TOP + count * _ROW + 34


def _bar(frame: Frame, row: int, name: str, value: float, shown: str) -> list[Markup]:
    y = _TOP + row * _ROW
    return [
        row_name(y, name),
        rect(frame.x(0), y + 3, frame.x(value) - frame.x(0), _ROW - 7, "c0", f"{name}: {shown}"),
        text(_WIDTH - _VALUES + 8, y + 14, shown, class_="value"),
    ]


def row_name(y: float, name: str) -> Markup:
    """Draw a name left of its bar. A long one loses its front: its end is distinctive."""
    shown = name if len(name) <= _LETTERS else f"…{name[1 - _LETTERS :]}"
    return text(_NAMES - 6, y + 14, shown, "end")
