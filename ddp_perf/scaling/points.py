"""The points that a scaling law is fitted to: step times by world size, with their errors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.render.units import counted
from ddp_perf.stats.robust import robust_sd

# Documents publish no spread, and authors round by a per cent (`stats.audit`). That is taken as two
# standard deviations. No law of a step is more exact than that either.
UNSTATED_ERROR = 0.005
# A law of strong scaling is less exact: the compute of a rank is no straight line of its batch.
# Chosen on every second published curve, and checked on the others: benchmarks/strong_scaling.py
STRONG_ERROR = 0.02
# The prior of the error weighs as much as one observation. If a law is wrong by more, the points
# widen the error.
ERROR_FREEDOM = 1


class ScalingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A step time at a number of ranks, at one batch: per rank (weak), or global (strong)."""

    world_size: int
    step_s: float
    error: float = 0.0  # standard error, as a share of it; 0: not known
    law_error: float = UNSTATED_ERROR  # of a law and of a figure without a spread; or STRONG_ERROR

    @property
    def uncertainty(self) -> float:
        """The standard error including `law_error`, as a share of the step time."""
        return math.hypot(self.error, self.law_error)


def point_of(world_size: int, steps: Sequence[float]) -> ScalingPoint:
    """Return the point at the median of steps of equal precision, such as those of launches.

    Its error is that of a median of normal logs. Their sd is their median absolute deviation ×
    1.4826, which launches in a slow mode do not widen. With fewer than three steps the error is 0,
    which means not known.
    """
    error = 0.0
    if len(steps) > 2:
        spread = robust_sd([math.log(step) for step in steps])
        error = math.sqrt(math.pi / 2 / len(steps)) * spread
    return ScalingPoint(world_size=world_size, step_s=statistics.median(steps), error=error)


def session_points(levels: Sequence[tuple[int, Sequence[float]]]) -> list[ScalingPoint]:
    """Return a point at the median of each world size's sessions, of which each has two or more.

    The error is that of one session, since the next measurement is one. It is pooled over the world
    sizes, because a handful of sessions gives a poor estimate.
    """
    logs = [[math.log(step) for step in steps] for _, steps in levels]
    squares = sum((len(one) - 1) * statistics.variance(one) for one in logs)
    error = math.sqrt(squares / sum(len(one) - 1 for one in logs))
    return [
        ScalingPoint(world_size=world_size, step_s=statistics.median(steps), error=error)
        for world_size, steps in levels
    ]


def first_invalid_point(points: Sequence[ScalingPoint]) -> str | None:
    """Return why no law can be fitted to these points, or None if one can."""
    for point in points:
        if point.world_size < 1:
            return f"{point.world_size} ranks is not a world size"
        if not 0 < point.step_s < math.inf:  # true of NaN as well
            return f"the step time of {ranks_text(point.world_size)} is {point.step_s}"
        if not 0 <= point.error < math.inf:
            return f"the error of {ranks_text(point.world_size)} is {point.error}"
    sizes = sorted({point.world_size for point in points})
    if len(sizes) < 2:
        given = f"only {ranks_text(sizes[0])}" if sizes else "none"
        return f"a law needs two world sizes, but the data have {given}"
    return None


def ranks_text(ranks: int) -> str:
    """Return "1 rank", "2 ranks", …"""
    return counted(ranks, "rank")
