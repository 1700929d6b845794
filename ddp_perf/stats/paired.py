"""The ratio of two cases by launches of the same rounds, with its 95 % interval.

Launches of one round ran one after the other, so that what slows a machine down for minutes cancels
within a pair.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.stats.rule.comparison import upper_t

_LEVEL = 0.05  # of the two-sided interval


class PairedRatio(msgspec.Struct, frozen=True, kw_only=True):
    """One case ÷ the other one, over pairs of launches."""

    ratio: float
    interval: tuple[float, float] | None  # None: a single pair
    pairs: int


def ratio_of_positive(values: Sequence[float], base: Sequence[float]) -> PairedRatio | None:
    """Return the geometric mean of the ratio of each pair; None without a pair.

    Its interval is Student's, of the logarithms.
    """
    pairs = len(base)
    if not pairs:
        return None
    logs = [math.log(own / other) for own, other in zip(values, base, strict=True)]
    mean = statistics.fmean(logs)
    if pairs == 1:
        return PairedRatio(ratio=math.exp(mean), interval=None, pairs=1)
    margin = _t(pairs) * math.sqrt(statistics.variance(logs) / pairs)
    ends = (math.exp(mean - margin), math.exp(mean + margin))
    return PairedRatio(ratio=math.exp(mean), interval=ends, pairs=pairs)


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
    part = _t(pairs) ** 2 / pairs
    square = below**2 - part * statistics.variance(base)
    if square <= 0:
        return None
    product = above * below - part * statistics.covariance(values, base)
    rest = above**2 - part * statistics.variance(values)
    root = math.sqrt(max(0.0, product**2 - square * rest))
    ends = ((product - root) / square, (product + root) / square)
    return PairedRatio(ratio=above / below, interval=ends, pairs=pairs)


def _t(pairs: int) -> float:
    return upper_t(pairs - 1, _LEVEL / 2)
