"""PNG and SVG plots of a suite for papers and slides: throughput, speed-up and efficiency."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_perf.render.tables import short_names
from ddp_perf.report.rows import CaseRow

_FORMATS = ("png", "svg")
_MOST = 40  # bars that a reader can distinguish
_BLUE = "#0072b2"
_WIDTH, _LETTER = 7.0, 0.075  # inches: width of a figure, and of a letter


def plot_files(rows: Sequence[CaseRow]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each plot of one suite, or nothing if no case was measured."""
    measured = [row for row in rows if row.throughput is not None][:_MOST]
    scaled = [row for row in measured if row.efficiency is not None]
    if measured:
        figure, (axes,) = _figure(measured, 1)
        values = [row.throughput or 0.0 for row in measured]
        _bars(axes, values, "{:,.0f}", f"{measured[0].unit} a second, over all ranks")
        yield from _files("throughput", figure)
    if scaled:
        figure, (left, right) = _figure(scaled, 2)
        _bars(left, [row.speedup or 0.0 for row in scaled], "{:.2f} ×", "speed-up, one rank = 1")
        _bars(right, [100 * (row.efficiency or 0.0) for row in scaled], "{:.0f}", "efficiency, %")
        for reference in (80, 90):
            right.axvline(reference, color="0.4", linewidth=0.9, linestyle=":")
        yield from _files("speedup_efficiency", figure)


def _figure(rows: Sequence[CaseRow], columns: int) -> tuple[Figure, list[Axes]]:
    """Create a figure with one line for each case, named at the left.

    The margins are set by hand, because matplotlib's automatic layouts draw every figure twice.
    """
    names = list(short_names(row.case for row in rows).values())
    height = 0.9 + 0.28 * len(rows)
    left = min(0.3 + _LETTER * max(map(len, names)), 0.6 * _WIDTH)
    margins = {
        "left": left / _WIDTH,
        "right": 0.98,
        "wspace": 0.08,
        "bottom": 0.6 / height,
        "top": 1 - 0.1 / height,
    }
    figure = Figure(figsize=(_WIDTH, height))
    axes = list(figure.subplots(1, columns, sharey=True, squeeze=False, gridspec_kw=margins)[0])
    names = [name.replace("$", r"\$") for name in names]
    axes[0].set_yticks(range(len(rows)), names, fontsize=8)
    axes[0].invert_yaxis()
    return figure, axes


def _bars(axes: Axes, values: Sequence[float], written: str, label: str) -> None:
    bars = axes.barh(range(len(values)), values, color=_BLUE)
    axes.bar_label(bars, [written.format(value) for value in values], padding=3, fontsize=8)
    axes.set_xlabel(label)
    axes.margins(x=0.2)
    axes.spines[["top", "right"]].set_visible(False)


def _files(name: str, figure: Figure) -> Iterator[tuple[str, bytes]]:
    for kind in _FORMATS:
        data = io.BytesIO()
        with matplotlib.rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script
            figure.savefig(data, format=kind, dpi=120)
        yield f"{name}.{kind}", data.getvalue()
