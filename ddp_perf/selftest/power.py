"""The power of the gate: the observed share of trials, and the power that the rule predicts."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.stats.robust import Floats, robust_sd
from ddp_perf.stats.rule.comparison import POWER, Comparison
from ddp_perf.stats.rule.inputs import Figures
from ddp_perf.stats.rule.modes import levels_of, without_slow_sessions

CONFIDENCE = 0.95
_QUANTILES = 400  # of the estimated error; the power is then exact to 0.1 %
_SMALLEST_ERROR = 1e-9  # for session means that do not differ at all
_MOST_PERMILLE = 1000  # a slow-down of 100 %: a gate that misses this is useless


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


class PowerModel(msgspec.Struct, frozen=True, kw_only=True):
    """The rule of the judge for normal session means in one mode, without a control.

    The difference D is normal around ``log(1 + slow-down)`` with sd ``standard_error``. Its
    estimate s is independent of it, ``s² ~ standard_error² χ²_ν / ν``, and never below
    ``least_error``, the part of the launches. So the power is::

        E_s Φ((log(1 + slow-down) − critical(s)) ÷ standard_error)

    If ``critical(s) = t s``, without tolerance and least error, this is the noncentral t
    (Johnson, Kotz & Balakrishnan, Continuous univariate distributions 2, 1995, chapter 31).
    """

    standard_error: float  # the true one, of the difference of logs
    least_error: float
    degrees_of_freedom: float  # of the estimate of the standard error
    tolerance: float
    level: float

    def power(self, slow_downs: Floats) -> Floats:
        """Return the probability of a REGRESSION for each slow-down, a fraction (0.05: 5 %)."""
        excess = np.log1p(slow_downs)[:, None] - self._critical()
        power: Floats = special.ndtr(excess / self.standard_error).mean(axis=1)
        return power

    def detectable(self) -> float | None:
        """Return the minimum detectable effect at 90 % power, to 0.1 %; None if over 100 %."""
        found = bisect.bisect_left(
            range(_MOST_PERMILLE),
            True,
            key=lambda permille: bool(self.power(np.array([permille / 1000]))[0] >= POWER),
        )
        return found / 1000 if found < _MOST_PERMILLE else None

    def _critical(self) -> Floats:
        """Return the critical difference for each quantile of the estimated error."""
        df = self.degrees_of_freedom
        upper = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        estimates = self.standard_error * np.sqrt(special.chdtri(df, upper) / df)
        estimates = np.maximum(estimates, self.least_error)
        comparisons = (
            Comparison(
                difference=0.0,
                standard_error=float(estimate),
                degrees_of_freedom=df,
                tolerance=self.tolerance,
            )
            for estimate in estimates
        )
        return np.array([comparison.critical(self.level) for comparison in comparisons])


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance components of sessions of the same code, as sds on the log scale."""

    launch: float  # of launches within a session
    session: float  # between sessions, without the part of their launches

    def model(self, *, launches: int, sessions: int, tolerance: float, level: float) -> PowerModel:
        """Return the power model of a session against a baseline of ``sessions`` (2 or more)."""
        noise = self.launch**2 / launches
        twice = 1 + 1 / min(sessions, REFERENCE_SESSIONS)  # this session and the reference
        return PowerModel(
            standard_error=max(_SMALLEST_ERROR, math.sqrt((self.session**2 + noise) * twice)),
            least_error=math.sqrt(noise * twice),
            degrees_of_freedom=float(sessions - 1),
            tolerance=tolerance,
            level=level,
        )


def spread_of(sessions: Sequence[Figures], tolerance: float) -> Spread:
    """Estimate the variance components from sessions × launches.

    This is a one-way analysis of variance: the variance between sessions, less the part of their
    launches. It needs two sessions. Slow launches are left out.
    """
    levels = levels_of(sessions, tolerance)
    kept = without_slow_sessions(levels, len(sessions))
    noise = levels.launch_variance * float(np.mean(1 / levels.fast_launches[kept]))
    between = float(levels.fast[kept].var(ddof=1))
    return Spread(
        launch=math.sqrt(levels.launch_variance), session=math.sqrt(max(0.0, between - noise))
    )
