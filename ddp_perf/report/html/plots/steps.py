"""The distribution of step times, by launch and by rank."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from markupsafe import Markup

from ddp_perf.core.measurement import Measurement
from ddp_perf.report.html.scale import Scale, coordinate
from ddp_perf.report.html.svg import Frame, path, picture, text

_WIDTH, _ROW, _TOP = 400.0, 14.0, 44.0
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
    bottom = _TOP + len(boxes) * _ROW
    frame = Frame(
        x=Scale(low=low - margin, high=high + margin, start=66, end=_WIDTH - 12),
        y=Scale(low=0, high=1, start=bottom, end=_TOP - 4),
    )
    parts = [text(0, 14, title, class_="label")]
    parts.append(frame.bottom_axis([(t, f"{t:.6g}") for t in frame.x.ticks()], "ms a step"))
    parts += [text(60, _TOP + (i + 0.5) * _ROW + 4, box.name, "end") for i, box in enumerate(boxes)]
    if baseline_ms is not None:
        parts.append(frame.vertical(baseline_ms, "reference", "baseline"))
    whiskers, middles, medians = "", "", ""
    for i, box in enumerate(boxes):
        y = _TOP + (i + 0.5) * _ROW
        least, quarter, median, three_quarters, most = (coordinate(frame.x(m)) for m in box.marks)
        whiskers += f"M{least} {coordinate(y)}H{most}"
        middles += f"M{quarter} {coordinate(y - 4)}H{three_quarters}v8H{quarter}z"
        medians += f"M{median} {coordinate(y - 5)}v10"
    parts += [path(whiskers, "whisker"), path(middles, "box"), path(medians, "median")]
    return picture(_WIDTH, bottom + 34, title, parts)
