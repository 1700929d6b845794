"""Intervals of a mean, and of a ratio of two means, by Student's t."""

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
