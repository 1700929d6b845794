"""The plot of a prediction: speedup over ranks, with points, extrapolation and limits."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ddp_perf.scaling.prediction import Prediction
from ddp_perf.scaling.text import curve_title
from ddp_perf.system.files import replace_file


def write_prediction_plot(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write the plot as a PNG, completely or not at all. Raises OSError."""
    data = io.BytesIO()
    prediction_figure(predictions).savefig(data, format="png", dpi=120)
    replace_file(path, data.getvalue())


def prediction_figure(predictions: Sequence[Prediction]) -> Figure:
    """Draw one panel for each predicted curve: speedup over ranks."""
    shown = [one for one in predictions if one.refusal is None]
    figure = Figure(figsize=(9.0, 5.6 * max(len(shown), 1)), layout="constrained")
    for number, prediction in enumerate(shown, start=1):
        _plot(figure.add_subplot(len(shown), 1, number), prediction)
    return figure


def _plot(axes: Axes, prediction: Prediction) -> None:
    ranks = [step.world_size for step in prediction.steps]
    axes.plot(ranks, ranks, color="0.6", linewidth=1, label="physical limit: only compute")
    for name, limit in prediction.speedup_limit.items():
        if math.isfinite(limit.value) and limit.value < 2 * max(ranks):
            label = f"limit of the latency of a {name}"
            axes.axhline(limit.value, color="0.6", linewidth=1, linestyle=":", label=label)
    _plot_extrapolation(axes, prediction)
    for check in prediction.cross_checks:
        speedups = [_speedup(prediction, n, check.step_s[n].value) for n in ranks]
        label = f"cross-check {check.law}"
        axes.plot(ranks, speedups, color="C1", linewidth=0.8, linestyle="-.", label=label)
    _plot_points(axes, prediction)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ranks, [str(n) for n in ranks], rotation=45)
    axes.set_ylim(0.5, 2 * max(ranks))
    axes.set_xlabel("ranks")
    kind = "strong" if prediction.series.strong else "weak"
    axes.set_ylabel(f"speedup ({kind} scaling) against one rank")
    axes.legend(loc="upper left", fontsize=8, edgecolor="none")
    axes.set_title(curve_title(prediction.series), fontsize=9)


def _plot_extrapolation(axes: Axes, prediction: Prediction) -> None:
    steps = prediction.steps
    ranks = [step.world_size for step in steps]
    middle, low, high = (
        [_speedup(prediction, step.world_size, end) for step, end in zip(steps, ends, strict=True)]
        for ends in zip(
            *((s.step_s.value, s.step_s.high, s.step_s.low) for s in steps), strict=True
        )
    )
    label = "extrapolated: α-β model, 90 % band"
    axes.plot(ranks, middle, color="C0", linewidth=1.2, linestyle="--", label=label)
    axes.fill_between(ranks, low, high, color="C0", alpha=0.15, linewidth=0)


def _plot_points(axes: Axes, prediction: Prediction) -> None:
    """Draw the given points in black; those that were not fitted are hollow."""
    for fitted, face in ((True, "black"), (False, "white")):
        points = [
            (step.world_size, _speedup(prediction, step.world_size, step.given_s))
            for step in prediction.steps
            if step.given_s is not None and step.fitted is fitted
        ]
        if points:
            label = f"{prediction.series.source}, {'fitted' if fitted else 'held out'}"
            x, y = zip(*points, strict=True)
            axes.plot(x, y, "o", color="black", markerfacecolor=face, markersize=5, label=label)


def _speedup(prediction: Prediction, ranks: int, step_s: float) -> float:
    """Return the speedup against one rank of a step of N ranks."""
    batches = 1 if prediction.series.strong else ranks
    return batches * _single_s(prediction) / step_s


def _single_s(prediction: Prediction) -> float:
    """Return the step time of one rank: as given, or else as fitted (the compute)."""
    given = [s.given_s for s in prediction.steps if s.world_size == 1 and s.given_s is not None]
    return given[0] if given else prediction.steps[0].parts["compute"]
