"""Intervals of a mean, and of a ratio of two means, by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.stats.sequential import upper_t

CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2


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
    margin = upper_t(len(values) - 1, _TAIL) * math.sqrt(_variance_of_mean(values))
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
    parts = [_variance_of_mean(logs) for logs in (before, after)]
    total = sum(parts)
    if total == 0:
        return Estimate(value=ratio, low=ratio, high=ratio)
    freedom = total**2 / sum(
        part**2 / (len(logs) - 1) for part, logs in zip(parts, (before, after), strict=True)
    )
    margin = min(upper_t(freedom, _TAIL) * math.sqrt(total), 300.0)  # exp stays finite
    return Estimate(
        value=ratio, low=math.exp(difference - margin), high=math.exp(difference + margin)
    )


def _variance_of_mean(values: Sequence[float]) -> float:
    return statistics.variance(values) / len(values)
