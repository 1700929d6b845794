"""The ratio of two cases by launches of the same rounds, with its interval.

Launches of one round ran one after the other, so that what slows a machine down for minutes cancels
within a pair. The interval is Fieller's (1954), which also holds for values around 0::

    { θ : (mean(a) − θ mean(b))² ≤ t² Var(a − θ b) ÷ n }

It has no end if the mean of ``b`` cannot be distinguished from 0. Then there is no ratio.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.stats.rule.comparison import upper_t

_LEVEL = 0.05  # of the two-sided interval


class PairedRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The mean of one case ÷ that of the other, over pairs of launches."""

    ratio: float
    interval: tuple[float, float] | None  # 95 %; None: a single pair
    pairs: int


def paired_ratio(values: Sequence[float], base: Sequence[float]) -> PairedRatio | None:
    """Return mean(values) ÷ mean(base); pairs have equal places.

    None: there is no pair, or the base cannot be distinguished from 0.
    """
    pairs = len(base)
    if not pairs or (below := statistics.fmean(base)) <= 0:
        return None
    above = statistics.fmean(values)
    if pairs == 1:
        return PairedRatio(ratio=above / below, interval=None, pairs=1)
    t = upper_t(pairs - 1, _LEVEL / 2)
    part = t * t / pairs
    square = below**2 - part * statistics.variance(base)
    if square <= 0:
        return None
    product = above * below - part * statistics.covariance(values, base)
    rest = above**2 - part * statistics.variance(values)
    root = math.sqrt(max(0.0, product**2 - square * rest))
    ends = ((product - root) / square, (product + root) / square)
    return PairedRatio(ratio=above / below, interval=ends, pairs=pairs)
