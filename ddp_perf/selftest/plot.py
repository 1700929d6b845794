"""The plot of a power curve: the share that was found, by the observed slow-down."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_perf.selftest.curve import MOSTLY, Point, PowerCurve, conclusion_of
from ddp_perf.system.files import replace_file

_MOST = 30  # per cent: the largest slow-down drawn
_TITLE_WIDTH = 95


def write_power_plot(path: Path, curve: PowerCurve) -> None:
    """Write a PNG, completely or not at all. Raises OSError."""
    data = io.BytesIO()
    power_figure(curve).savefig(data, format="png", dpi=120)
    replace_file(path, data.getvalue())


def power_figure(curve: PowerCurve) -> Figure:
    """Draw the share of trials that is found against the slow-down, both in per cent."""
    figure = Figure(figsize=(9.0, 5.6), layout="constrained")
    axes = figure.subplots()
    for point in curve.points:
        _plot_point(axes, point)
    axes.axhline(100 * MOSTLY, color="0.7", linewidth=0.8, zorder=0)
    axes.axvline(100 * curve.tolerance, color="0.7", linewidth=0.8, zorder=0)
    axes.text(100 * curve.tolerance, 95, "tolerance ", color="0.5", ha="right", fontsize=8)
    _frame(axes, curve)
    return figure


def _plot_point(axes: Axes, point: Point) -> None:
    """Draw a point with both intervals, and its trials and launches above it."""
    found = point.found
    rows = f"{point.percent} %\n{found.found} of {found.trials}\n{point.launches}"
    _write_above(axes, point.percent, rows, "center")
    if found.value is None:
        return
    x, x_low, x_high = 0.0, 0.0, 0.0
    if point.slow_down is not None:
        x, (x_low, x_high) = 100 * point.slow_down.value, 100 * np.array(point.slow_down.interval)
    y, (y_low, y_high) = 100 * found.value, 100 * np.array(found.interval)
    axes.errorbar(
        x,
        y,
        xerr=[[x - x_low], [x_high - x]],
        yerr=[[y - y_low], [y_high - y]],
        fmt="ko",
        markersize=5,
        capsize=3,
        linewidth=1,
    )


def _write_above(axes: Axes, x: float, rows: str, align: str) -> None:
    place = axes.get_xaxis_transform()  # x in units of the data, y in units of the frame
    axes.text(x, 1.02, rows, transform=place, ha=align, va="bottom", fontsize=8)


def _frame(axes: Axes, curve: PowerCurve) -> None:
    # Linear up to 2 %, then logarithmic, so that 2, 3, 5, 10 and 20 % are well separated.
    axes.set_xscale("symlog", linthresh=2, linscale=0.4)
    ticks = [point.percent for point in curve.points]
    axes.set_xticks(ticks, [f"{tick} %" for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlim(-2, _MOST)
    _write_above(axes, -2, "injected\nfound\nlaunches", "right")
    axes.set_ylim(-3, 103)
    axes.set_xlabel(f"observed slow-down of {curve.case_id}, 95 % interval")
    axes.set_ylabel("trials found (REGRESSION), per cent, 95 % interval")
    title = textwrap.fill(conclusion_of(curve), _TITLE_WIDTH)
    axes.set_title(f"{curve.environment.accelerator}\n{title}", fontsize=9, pad=44)
