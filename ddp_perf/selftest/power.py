"""The observed slow-down of trials, and how many trials show a rate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
from scipy import special

from ddp_perf.stats.robust import robust_sd
from ddp_perf.stats.share import CONFIDENCE


def trials_to_show(rate: float) -> int:
    """Return how many trials, none of them found, have an interval that is below ``rate``."""
    return math.ceil(math.log((1 - CONFIDENCE) / 2) / math.log1p(-rate))


class SlowDown(msgspec.Struct, frozen=True, kw_only=True):
    """The observed slow-down of slowed launches, as fractions."""

    value: float
    interval: tuple[float, float]  # 95 %, two-sided, approximate


def slow_down_of(slowed: Sequence[float], unslowed: Sequence[float]) -> SlowDown | None:
    """Return the ratio of the medians, less 1; None if a side has fewer than two launches.

    The sd of a median of n normal logs is ``sqrt(π/2) s ÷ sqrt(n)``. s is their median absolute
    deviation × 1.4826, so that launches in a slow mode do not widen it.
    """
    if min(len(slowed), len(unslowed)) < 2:
        return None
    sides = [[math.log(step) for step in side] for side in (slowed, unslowed)]
    variances = [math.pi / 2 * robust_sd(side) ** 2 / len(side) for side in sides]
    ratio = statistics.median(sides[0]) - statistics.median(sides[1])
    margin = float(special.ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(sum(variances))
    return SlowDown(
        value=math.expm1(ratio), interval=(math.expm1(ratio - margin), math.expm1(ratio + margin))
    )
