"""Figures against the number of ranks: each curve with its ideal, from its single-rank run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ddp_perf.render.tables import short_names
from ddp_perf.render.units import prefixed_number
from ddp_perf.report.curves import PlotSeries
from ddp_perf.report.rows import CaseRow

# Okabe and Ito's colours, which colour-blind readers distinguish; a marker for each further eight.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a00")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_WIDTH, _HEIGHT, _NAME, _LETTER = 7.5, 4.6, 0.21, 0.075  # inches: figure, line, and letter of names
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
    return _figure(curves, label, _THROUGHPUT)


def epoch_figure(curves: Sequence[PlotSeries], label: str) -> Figure:
    """Draw the time of an epoch; the ideal is that of one rank ÷ ranks."""
    return _figure(curves, label, _EPOCH)


def _figure(curves: Sequence[PlotSeries], label: str, quantity: _Quantity) -> Figure:
    """Draw the curves in one frame, named at the right.

    The margins are set by hand, because matplotlib's automatic layouts draw every figure twice.
    """
    shorter = short_names(curve.name for curve in curves)
    names = [shorter[curve.name].replace("$", r"\$") for curve in curves]
    height = max(_HEIGHT, 1.6 + _NAME * (len(curves) + 2))
    right = min(0.75 + _LETTER * max(len(name) for name in [*names, _IDEAL]), 3.0)
    figure = Figure(figsize=(_WIDTH, height))
    margins = {"left": 0.1, "right": 1 - right / _WIDTH, "bottom": 0.85 / height}
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
