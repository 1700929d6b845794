"""One launch in figures: what is gated, and what is shown beside it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import EFFICIENCY, PEAK_MEMORY, STEP_TIME, TAIL
from ddp_perf.core.result import LaunchResult


def group_steps(launch: LaunchResult) -> list[float]:
    """Seconds of each measured step: the slowest rank decides, step by step."""
    return [max(steps) for steps in zip(*(rank.step_s for rank in launch.ranks), strict=True)]


def summarise(
    launch: LaunchResult, *, samples_per_step: int, single: LaunchResult | None
) -> LaunchSummary:
    """Figures of one launch. ``single``: the one-rank launch of the same round, if any.

    Throughput is samples ÷ wall time from the first measured boundary to the last, of the
    rank that took longest; it holds every stall, which the median step leaves out.
    """
    steps = np.asarray(group_steps(launch))
    median, mean = float(np.median(steps)), float(np.mean(steps))
    values = {
        STEP_TIME.name: median,
        TAIL.name: mean / median,
        PEAK_MEMORY.name: float(max(rank.peak_memory for rank in launch.ranks)),
    }
    if single is not None:
        values[EFFICIENCY.name] = median / float(np.median(group_steps(single)))
    wall = max(sum(rank.step_s) for rank in launch.ranks)
    return LaunchSummary(
        round=launch.round,
        values=values,
        control_s=max(float(np.median(rank.control_s)) for rank in launch.ranks),
        mean_step_s=mean,
        p95_step_s=float(np.percentile(steps, 95)),
        throughput=samples_per_step * len(steps) / wall,
    )


def summarise_all(
    launches: Sequence[LaunchResult],
    *,
    samples_per_step: int,
    singles: Sequence[LaunchResult],
) -> list[LaunchSummary]:
    """Every launch of a case, each beside the one-rank launch of its own round."""
    by_round = {single.round: single for single in singles}
    return [
        summarise(launch, samples_per_step=samples_per_step, single=by_round.get(launch.round))
        for launch in launches
    ]
