"""PNG and SVG plots of a suite for papers and slides, with the ideal line of each curve."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence

import matplotlib
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ddp_perf.diagnose.advice import GOOD
from ddp_perf.render.tables import short_names
from ddp_perf.render.units import counted, prefixed_number
from ddp_perf.report.figures import PlotSeries, series_of
from ddp_perf.report.rows import CaseRow
from ddp_perf.session.result import SuiteResult

# Figures against the number of ranks: each curve with its ideal, from its single-rank run.


# Okabe and Ito's colours, which colour-blind readers distinguish; a marker for each further eight.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a00")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_CURVES_WIDTH, _CURVES_HEIGHT = 7.5, 4.6  # inches
_NAME, _LETTER = 0.21, 0.075  # inches: a line and a letter of names
_IDEAL = "ideal, from one rank"
_GREY = "0.45"
_PIECES = 60  # of an ideal line
_LINEAR = 16  # ranks: more are drawn on logarithmic axes, or the small numbers lie on each other


class _Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a row that is proportional to a power of the ranks, if they cost nothing."""

    of: Callable[[CaseRow], float | None]
    power: int  # of the ranks, and of 1 ÷ step time

    def value(self, row: CaseRow) -> float:
        value = self.of(row)
        assert value is not None  # only rows that have it are drawn
        return value

    def ideal(self, row: CaseRow, ranks: float) -> float:
        """Return the figure of so many ranks, if each is as fast as that of this row."""
        return self.value(row) * (ranks / row.ranks) ** self.power

    def ends(self, row: CaseRow) -> list[float]:
        """Return the lowest and the highest figure of any launch."""
        if not (row.step_s and row.step_low_s and row.step_high_s):
            return [self.value(row)] * 2
        steps = (row.step_low_s, row.step_high_s)
        return sorted(self.value(row) * (row.step_s / step) ** self.power for step in steps)


_THROUGHPUT = _Quantity(of=lambda row: row.throughput, power=1)
_EPOCH = _Quantity(of=lambda row: row.epoch_s, power=-1)


def throughput_figure(curves: Sequence[PlotSeries], label: str) -> Figure:
    """Draw the throughput; the ideal is that of one rank × ranks."""
    return _rank_figure(curves, label, _THROUGHPUT)


def epoch_figure(curves: Sequence[PlotSeries], label: str) -> Figure:
    """Draw the time of an epoch; the ideal is that of one rank ÷ ranks."""
    return _rank_figure(curves, label, _EPOCH)


def _rank_figure(curves: Sequence[PlotSeries], label: str, quantity: _Quantity) -> Figure:
    """Draw the curves in one frame, named at the right.

    The margins are set by hand, because matplotlib's automatic layouts draw every figure twice.
    """
    shorter = short_names(curve.name for curve in curves)
    names = [shorter[curve.name].replace("$", r"\$") for curve in curves]
    height = max(_CURVES_HEIGHT, 1.6 + _NAME * (len(curves) + 2))
    right = min(0.75 + _LETTER * max(len(name) for name in [*names, _IDEAL]), 3.0)
    figure = Figure(figsize=(_CURVES_WIDTH, height))
    margins = {"left": 0.1, "right": 1 - right / _CURVES_WIDTH, "bottom": 0.85 / height}
    figure.subplots_adjust(top=1 - 0.55 / height, **margins)
    axes = figure.subplots()
    for number, (curve, name) in enumerate(zip(curves, names, strict=True)):
        _curve(axes, curve, name, quantity, number)
    _ideals(axes, curves, quantity)
    _frame(axes, sorted({row.ranks for curve in curves for row in curve.rows}), label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=8, frameon=False)
    return figure


def _curve(axes: Axes, curve: PlotSeries, name: str, quantity: _Quantity, number: int) -> None:
    """Draw the points, with the range of their launches."""
    values = [quantity.value(row) for row in curve.rows]
    ends = [quantity.ends(row) for row in curve.rows]
    beyond = [[v - low, high - v] for v, (low, high) in zip(values, ends, strict=True)]
    axes.errorbar(
        [row.ranks for row in curve.rows],
        values,
        yerr=[[max(0.0, side) for side in sides] for sides in zip(*beyond, strict=True)],
        color=_colour(number),
        marker=_MARKERS[number // len(_COLOURS) % len(_MARKERS)],
        markersize=5,
        linewidth=1.5,
        capsize=3,
        elinewidth=1,
        label=name,
    )


def _ideals(axes: Axes, curves: Sequence[PlotSeries], quantity: _Quantity) -> None:
    """Draw a line from each single-rank run, in its curve's colour; curves may share one."""
    owners: dict[str, list[int]] = {}
    for number, curve in enumerate(curves):
        owners.setdefault(curve.rows[0].case, []).append(number)
    for numbers in owners.values():
        single, most = curves[numbers[0]].rows[0], max(curves[n].rows[-1].ranks for n in numbers)
        ranks = np.linspace(single.ranks, most, _PIECES)
        axes.plot(
            ranks,
            [quantity.ideal(single, number) for number in ranks],
            color=_colour(numbers[0]) if len(numbers) == 1 else _GREY,
            linewidth=1,
            linestyle="--",
            zorder=1,
        )
    axes.plot([], [], color=_GREY, linewidth=1, linestyle="--", label=_IDEAL)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _frame(axes: Axes, ranks: Sequence[int], label: str) -> None:
    if ranks[-1] > _LINEAR:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_xlim(0.5, ranks[-1] + 0.5)
        axes.set_ylim(bottom=0)
    axes.set_xticks(ranks, [str(number) for number in ranks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: prefixed_number(number)))
    axes.set_xlabel("ranks", fontsize=9)
    axes.set_ylabel(label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)


# PNG and SVG plots of a suite for papers and slides, with the ideal line of each curve.


_FORMATS = ("png", "svg")
_MOST = 40  # bars that a reader can distinguish
_BLUE = "#0072b2"
_WIDTH = 7.0  # inches
_TOP, _BOTTOM, _ROW = 0.62, 0.85, 0.28  # inches


def plot_files(result: SuiteResult, rows: Sequence[CaseRow]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each plot of one suite, or nothing if no case was measured.

    Throughput and time of an epoch are drawn against the ranks, and as bars without a curve.
    """
    measured = [row for row in rows if row.throughput is not None][:_MOST]
    if not measured:
        return
    title = result.suite + (", slowed on purpose" if result.injections else "")
    unit = f"{measured[0].unit} a second, over all ranks"
    curves = series_of(result, measured)
    rates = [row.throughput or 0.0 for row in measured]
    figure = throughput_figure(curves, unit) if curves else _bars(measured, rates, unit)
    _describe(figure, f"{title}: throughput", measured, draws_range=bool(curves))
    yield from _files("throughput", figure)
    if scaled := [row for row in measured if row.efficiency is not None]:
        figure = _speedup_and_efficiency(scaled)
        _describe(figure, f"{title}: speed-up and efficiency", scaled)
        yield from _files("speedup_efficiency", figure)
    if timed := [row for row in measured if row.epoch_s is not None]:
        unit, curves = "seconds of an epoch, computed", series_of(result, timed)
        times = [row.epoch_s or 0.0 for row in timed]
        figure = epoch_figure(curves, unit) if curves else _bars(timed, times, unit)
        _describe(figure, f"{title}: time of an epoch", timed, draws_range=bool(curves))
        yield from _files("epoch_time_detailed", figure)


def _speedup_and_efficiency(rows: Sequence[CaseRow]) -> Figure:
    """Draw both as bars side by side, with the ideal of each, and the least good efficiency."""
    figure, (left, right) = _figure(rows, 2)
    speedups, ranks = [row.speedup or 0.0 for row in rows], [float(row.ranks) for row in rows]
    _draw(left, speedups, "{:.2f} ×".format, "speed-up, one rank = 1")
    for line, ideal in enumerate(ranks):
        left.plot([ideal, ideal], [line - 0.42, line + 0.42], color="black", linewidth=1.5)
    left.set_xlim(0, 1.05 * max(*ranks, *speedups))
    _name(left, ranks[0], "ideal")
    percents = [100 * (row.efficiency or 0.0) for row in rows]
    _draw(right, percents, "{:.0f} %".format, "efficiency, %")
    right.set_xlim(0, 1.05 * max(100, *percents))
    for place, name, style in ((100.0, "ideal", "-"), (100 * GOOD, f"good: {100 * GOOD:.0f}", ":")):
        right.axvline(place, color="black", linewidth=1.2, linestyle=style)
        _name(right, place, name)
    return figure


def _name(axes: Axes, place: float, name: str) -> None:
    """Write the name of a line above it."""
    axes.text(place, -0.55, name, ha="center", va="bottom", fontsize=8)


def _bars(rows: Sequence[CaseRow], values: Sequence[float], label: str) -> Figure:
    figure, (axes,) = _figure(rows, 1)
    _draw(axes, values, prefixed_number, label)
    return figure


def _figure(rows: Sequence[CaseRow], columns: int) -> tuple[Figure, list[Axes]]:
    """Create a figure with one line for each case, named at the left.

    The margins are set by hand, because matplotlib's automatic layouts draw every figure twice.
    """
    short = short_names(row.case for row in rows)
    names = [short[row.case] for row in rows]
    height = _TOP + _BOTTOM + _ROW * len(rows)
    left = min(0.3 + _LETTER * max(map(len, names)), 0.6 * _WIDTH)
    margins = {
        "left": left / _WIDTH,
        "right": 0.92,
        "wspace": 0.25,
        "bottom": _BOTTOM / height,
        "top": 1 - _TOP / height,
    }
    figure = Figure(figsize=(_WIDTH, height))
    axes = list(figure.subplots(1, columns, sharey=True, squeeze=False, gridspec_kw=margins)[0])
    axes[0].set_yticks(range(len(rows)), [_plain(name) for name in names], fontsize=8)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return figure, axes


def _draw(axes: Axes, values: Sequence[float], write: Callable[[float], str], label: str) -> None:
    """Draw the bars, with their figures at the right of the frame, where no line crosses them."""
    axes.barh(range(len(values)), values, color=_BLUE, height=0.7)
    for place, value in enumerate(values):
        right = axes.get_yaxis_transform()  # x in units of the frame, y in units of the data
        axes.text(1.02, place, write(value), transform=right, va="center", fontsize=8)
    axes.set_xlabel(label, fontsize=9)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: prefixed_number(number)))
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _plain(name: str) -> str:
    """Return the text without a formula of matplotlib's."""
    return name.replace("$", r"\$")


def _describe(
    figure: Figure, title: str, rows: Sequence[CaseRow], *, draws_range: bool = False
) -> None:
    """Write the title above the figure, and the source of its data below."""
    height = figure.get_figheight()
    fewest, most = (end(row.launches for row in rows) for end in (min, max))
    commit = f", commit {rows[0].commit}" if rows[0].commit else ""
    launches = counted(most, "launch") if fewest == most else f"{fewest} to {most} launches"
    how = f"median of {launches}" if most > 1 else "one launch"
    source = f"{rows[0].accelerator}, {rows[0].date[:10]}{commit}; {how} of each case"
    if draws_range and most > 1:
        source += ", with the fastest and the slowest"
    figure.text(0.02, 1 - 0.12 / height, _plain(title), fontsize=11, va="top")
    figure.text(0.02, 0.1 / height, _plain(source), fontsize=7, color="0.35")


def _files(name: str, figure: Figure) -> Iterator[tuple[str, bytes]]:
    for kind in _FORMATS:
        data = io.BytesIO()
        with matplotlib.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script
            figure.savefig(data, format=kind, dpi=120)
        yield f"{name}.{kind}", data.getvalue()
