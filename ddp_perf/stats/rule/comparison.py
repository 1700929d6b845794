"""Two levels, the error of their difference, and what may be concluded from it."""

from __future__ import annotations

import math

import msgspec
from scipy import special

PASS_LEVEL = 0.005  # PASS needs the one-sided 99.5 % bound; the interval printed is its two sides
POWER = 0.9
# How much of the tolerance stands in for what is not known of the sessions; see `critical`.
_RELIEF = 0.85


class SignificanceLevels(msgspec.Struct, frozen=True, kw_only=True):
    """How often each answer may be wrong."""

    regression: float
    passing: float = PASS_LEVEL


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Current against baseline on the log scale, with a t-distributed error."""

    difference: float  # log ratio, positive: slower
    standard_error: float
    degrees_of_freedom: float
    tolerance: float  # as given: 0.02 is 2 %

    def critical(self, level: float) -> float:
        """The log ratio from which a slow-down is significant, and as large as the tolerance.

        ``t se − 0.85 tolerance (1 − z/t)``, t and z the upper quantiles at ``level`` of Student
        and the normal. Two conditions must hold for a regression, so a plain t test makes the
        pair stricter than its level: with quiet sessions the tolerance alone keeps false alarms
        out, and t's excess over z, the price of not knowing the sessions' sd, is paid in vain.
        The relief gives part of it back. It is a share of the tolerance and so vanishes against
        noisy sessions, and with many sessions or a good prior (t → z). The pair's false alarms, at
        worst over all session sds, are then 2.6 × ``level`` (at an sd of about a third of the
        tolerance, eight sessions, level 0.1 %); ``tests/quality/gate.py`` measures it.
        """
        t, z = upper_t(self.degrees_of_freedom, level), upper_t(math.inf, level)
        tolerance = math.log1p(self.tolerance)
        relief = _RELIEF * tolerance * (1 - z / t)
        return max(tolerance, t * self.standard_error - relief)

    def slower(self, level: float) -> bool:
        return self.difference >= self.critical(level)

    def faster(self, level: float) -> bool:
        return -self.difference >= self.critical(level)

    def passes(self, level: float) -> bool:
        """The ratio is below 1 + 2 tolerance, but for a chance of ``level``."""
        margin = upper_t(self.degrees_of_freedom, level) * self.standard_error
        return self.difference + margin < math.log1p(2 * self.tolerance)

    @property
    def margin(self) -> float:
        """Half the width of the interval: ± this on the log scale at 99 %."""
        return upper_t(self.degrees_of_freedom, PASS_LEVEL) * self.standard_error

    @property
    def ratio(self) -> float:
        return math.exp(self.difference)

    @property
    def interval(self) -> tuple[float, float]:
        margin = min(self.margin, 300.0)  # exp stays finite
        return math.exp(self.difference - margin), math.exp(self.difference + margin)

    def minimum_detectable(self, level: float) -> float:
        """The slow-down found with 90 % power at ``level``, as a fraction."""
        beta = upper_t(self.degrees_of_freedom, 1 - POWER) * self.standard_error
        return math.expm1(min(self.critical(level) + beta, 300.0))


def upper_t(degrees_of_freedom: float, level: float) -> float:
    """Upper quantile of Student's t; the normal's where the degrees of freedom are infinite."""
    return -float(special.stdtrit(degrees_of_freedom, level))
