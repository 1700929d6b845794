"""Intervals: of a median and of a share of trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec
from scipy import special

from ddp_perf.stats.rule.comparison import upper_t

# Intervals of a mean, and of a ratio of two means, by Student's t.


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
    tail = (1 - CONFIDENCE) / 2
    low = special.betaincinv(found, trials - found + 1, tail) if found else 0.0
    high = special.betaincinv(found + 1, trials - found, 1 - tail) if found < trials else 1.0
    return Share(found=found, trials=trials, interval=(float(low), float(high)))
