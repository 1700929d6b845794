"""Intervals of a mean and of a ratio by Student's t, and of a share; 95 % unless stated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
from scipy import special

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2


def upper_t(degrees_of_freedom: float, level: float) -> float:
    """Return the upper quantile of Student's t at ``level``.

    With infinite degrees of freedom it is the quantile of the normal law.
    """
    return -float(special.stdtrit(degrees_of_freedom, level))


def half_width(sd: float, samples: int, level: float) -> float:
    """Return the half-width of the interval of a mean; ``level`` is the error at each end."""
    return upper_t(samples - 1, level) * sd / math.sqrt(samples)


def satterthwaite(*parts: tuple[float, float]) -> float:
    """Return the degrees of freedom of a sum of variances (Satterthwaite 1946).

    ``parts`` are pairs of a variance and its degrees of freedom; 1 if all variances are 0.
    """
    total = sum(variance for variance, _ in parts)
    spent = sum(variance**2 / df for variance, df in parts)
    return total**2 / spent if spent else 1.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with its interval. The ends are None if a single value shows no spread."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def within(cls, value: float, interval: tuple[float, float]) -> Estimate:
        """Return a figure with an interval that another fit gave."""
        return cls(value=value, low=interval[0], high=interval[1])


class EstimatePair(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of two machines. None: that machine has no reading of it."""

    old: Estimate | None
    new: Estimate | None
    ratio: Estimate | None = None  # new ÷ old; None: not known, or a value is 0


def mean_estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of independent values with its 95 % interval.

    Raises StatisticsError if there is no value.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Estimate(value=mean)
    margin = half_width(statistics.stdev(values), len(values), _TAIL)
    return Estimate(value=mean, low=mean - margin, high=mean + margin)


def ratio_estimate(old: Sequence[float], new: Sequence[float]) -> Estimate | None:
    """Return the ratio new ÷ old of the geometric means with its 95 % interval (Welch 1947).

    The two samples may differ in their spread. Returns None if a value is not above 0.
    """
    if min(*old, *new) <= 0:
        return None
    before, after = ([math.log(value) for value in values] for values in (old, new))
    difference = statistics.fmean(after) - statistics.fmean(before)
    ratio = math.exp(difference)
    if len(before) < 2 or len(after) < 2:
        return Estimate(value=ratio)
    parts = [(statistics.variance(logs) / len(logs), len(logs) - 1.0) for logs in (before, after)]
    error = math.sqrt(sum(variance for variance, _ in parts))
    margin = min(upper_t(satterthwaite(*parts), _TAIL) * error, 300.0)  # exp stays finite
    low, high = math.exp(difference - margin), math.exp(difference + margin)
    return Estimate(value=ratio, low=low, high=high)


# The ratio of two cases by launches of the same rounds. Launches of one round ran one after the
# other, so that what slows a machine down for minutes cancels within a pair.


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
    part = upper_t(pairs - 1, _TAIL) ** 2 / pairs
    square = below**2 - part * statistics.variance(base)
    if square <= 0:
        return None
    product = above * below - part * statistics.covariance(values, base)
    rest = above**2 - part * statistics.variance(values)
    root = math.sqrt(max(0.0, product**2 - square * rest))
    ends = ((product - root) / square, (product + root) / square)
    return PairedRatio(ratio=above / below, interval=ends, pairs=pairs)


# The share of trials that were found, with its exact interval.


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The share of trials that were found, with an interval of the true rate."""

    found: int
    trials: int
    interval: tuple[float, float]  # 95 %, two-sided; 0 to 1 without a trial

    @property
    def value(self) -> float | None:
        return self.found / self.trials if self.trials else None

    def chance(self, rate: float) -> float:
        """Return the probability of at least this number found, if the true rate is ``rate``."""
        return float(special.bdtrc(self.found - 1, self.trials, rate)) if self.found else 1.0


def share_found(found: int, trials: int) -> Share:
    """Return the share with its exact interval (Clopper & Pearson, Biometrika 26, 1934).

    Raises ValueError if ``found`` is negative or above ``trials``.
    """
    if not 0 <= found <= trials:
        raise ValueError(f"found {found} of {trials}")
    low = special.betaincinv(found, trials - found + 1, _TAIL) if found else 0.0
    high = special.betaincinv(found + 1, trials - found, 1 - _TAIL) if found < trials else 1.0
    return Share(found=found, trials=trials, interval=(float(low), float(high)))
