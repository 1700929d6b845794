"""The plot of a sweep: the step of each setting beside the suite's own, with its interval."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_perf.duel.sweep.halving import SettingResult, SweepResult
from ddp_perf.duel.sweep.report import conclusion_text
from ddp_perf.system.files import replace_file

_TITLE_WIDTH = 95
_ROW_IN = 0.28  # inches


def write_sweep_plot(path: Path, result: SweepResult) -> None:
    """Write a PNG, completely or not at all. Raises OSError."""
    data = io.BytesIO()
    sweep_figure(result).savefig(data, format="png", dpi=120)
    replace_file(path, data.getvalue())


def sweep_figure(result: SweepResult) -> Figure:
    """Draw the change of each measured setting in per cent, the one that lasted longest on top."""
    shown = [one for one in result.settings if one.ratio is not None]
    figure = Figure(figsize=(9.0, 1.8 + _ROW_IN * max(len(shown), 1)), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0.0, color="0.6", linewidth=1)
    for row, one in enumerate(shown):
        _plot_setting(axes, row, one, is_best=one.name == result.best)
    axes.set_yticks(range(len(shown)), [one.name for one in shown], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("step against the suite's own setting, per cent; 95 % interval; n: launches")
    title = textwrap.fill(conclusion_text(result), _TITLE_WIDTH)
    axes.set_title(f"{result.case_id}\n{title}", fontsize=9)
    return figure


def _plot_setting(axes: Axes, row: int, one: SettingResult, *, is_best: bool) -> None:
    assert one.ratio is not None  # only measured settings are drawn
    change = 100 * (one.ratio.ratio - 1)
    ends = one.ratio.interval
    error = None
    if ends is not None:
        error = [[change - 100 * (ends[0] - 1)], [100 * (ends[1] - 1) - change]]
    axes.errorbar(change, row, xerr=error, fmt="o", color="C0" if is_best else "0.4", capsize=3)
    rung = f", dropped in rung {one.dropped}" if one.dropped is not None else ""
    axes.annotate(
        f"n = {one.launches}{rung}",
        (change, row),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=6,
        color="0.4",
    )
