"""What a scaling law is fitted to: step times over numbers of ranks, and how sure they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.render.units import counted
from ddp_perf.stats.robust import robust_sd

# Nobody publishes a spread. Authors round by a per cent without saying so (`stats.audit`): that
# is taken for two standard deviations. Nor is any law of a step true to less than that.
UNTOLD_ERROR = 0.005
# The error is believed as a single observation of it would be: a law may be wrong by more, and
# then the points show it.
ERROR_FREEDOM = 1


class ScalingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A step time at a number of ranks, at one batch per rank (weak scaling)."""

    world_size: int
    step_s: float
    error: float = 0.0  # standard error, as a share of it; 0: not known

    @property
    def uncertainty(self) -> float:
        """With what is not told."""
        return math.hypot(self.error, UNTOLD_ERROR)


def point_of(world_size: int, steps: Sequence[float]) -> ScalingPoint:
    """The median of steps that are equally sure, such as those of launches.

    Its error is that of a median of normal logs; their sd is their median absolute deviation ×
    1.4826, which launches in a slow mode do not widen. 0, not known, with fewer than three.
    """
    error = 0.0
    if len(steps) > 2:
        spread = robust_sd([math.log(step) for step in steps])
        error = math.sqrt(math.pi / 2 / len(steps)) * spread
    return ScalingPoint(world_size=world_size, step_s=statistics.median(steps), error=error)


def first_invalid_point(points: Sequence[ScalingPoint]) -> str | None:
    """Why no law can be fitted to these points, in one sentence; None where one can."""
    for point in points:
        if point.world_size < 1:
            return f"{point.world_size} ranks is no world size"
        if not 0 < point.step_s < math.inf:  # true of NaN as well
            return f"the step time of {ranks_text(point.world_size)} is {point.step_s}"
        if not 0 <= point.error < math.inf:
            return f"the error of {ranks_text(point.world_size)} is {point.error}"
    sizes = sorted({point.world_size for point in points})
    if len(sizes) < 2:
        known = ranks_text(sizes[0]) if sizes else "none"
        return f"a law needs two world sizes, and there is {known}"
    return None


def ranks_text(ranks: int) -> str:
    return counted(ranks, "rank")
