"""The ratio of two cases by launches of the same rounds, with its 95 % interval.

Launches of one round ran one after the other, so that what slows a machine down for minutes cancels
within a pair.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.stats.interval import mean_estimate, upper_t
from ddp_perf.stats.share import CONFIDENCE


class PairedRatio(msgspec.Struct, frozen=True, kw_only=True):
    """One case ÷ the other one, over pairs of launches."""

    ratio: float
    interval: tuple[float, float] | None  # None: a single pair
    pairs: int


def ratio_of_positive(values: Sequence[float], base: Sequence[float]) -> PairedRatio | None:
    """Return the geometric mean of the ratio of each pair; None without a pair.

    Its interval is Student's, of the logarithms.
    """
    if not base:
        return None
    logs = [math.log(own / other) for own, other in zip(values, base, strict=True)]
    found = mean_estimate(logs)
    ends = None
    if found.low is not None and found.high is not None:
        ends = (math.exp(found.low), math.exp(found.high))
    return PairedRatio(ratio=math.exp(found.value), interval=ends, pairs=len(logs))


def ratio_of_means(values: Sequence[float], base: Sequence[float]) -> PairedRatio | None:
    """Return mean(values) ÷ mean(base), for values that may be 0; pairs have equal places.

    The interval is Fieller's (1954)::

        { θ : (mean(a) − θ mean(b))² ≤ t² Var(a − θ b) ÷ n }

    It has no end if the mean of the base cannot be distinguished from 0. Then there is no ratio,
    and None is returned, as without a pair.
    """
    pairs = len(base)
    if not pairs or (below := statistics.fmean(base)) <= 0:
        return None
    above = statistics.fmean(values)
    if pairs == 1:
        return PairedRatio(ratio=above / below, interval=None, pairs=1)
    part = upper_t(pairs - 1, (1 - CONFIDENCE) / 2) ** 2 / pairs
    square = below**2 - part * statistics.variance(base)
    if square <= 0:
        return None
    product = above * below - part * statistics.covariance(values, base)
    rest = above**2 - part * statistics.variance(values)
    root = math.sqrt(max(0.0, product**2 - square * rest))
    ends = ((product - root) / square, (product + root) / square)
    return PairedRatio(ratio=above / below, interval=ends, pairs=pairs)
