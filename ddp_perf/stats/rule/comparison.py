"""The difference of two levels, its error, and what may be concluded from it."""

from __future__ import annotations

import math

import msgspec
from scipy import special

PASS_LEVEL = 0.005  # PASS needs the one-sided 99.5 % bound; the printed interval has both sides
POWER = 0.9
# Sessions are taken to follow the normal law to one in a thousand. What is rarer is taken to be as
# frequent as with Student's t with 3 df, where the normal law raises 30 alarms for one at 1e-4.
_TAIL_LEVEL, _TAIL_DF = 0.001, 3.0
_FAMILIAR = -float(special.ndtri(_TAIL_LEVEL))  # in standard errors
_TAIL_SCALE = -float(special.stdtrit(_TAIL_DF, _TAIL_LEVEL)) / _FAMILIAR


class SignificanceLevels(msgspec.Struct, frozen=True, kw_only=True):
    """The probability with which each answer may be wrong."""

    regression: float
    passing: float = PASS_LEVEL


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The current session against the baseline on the log scale, with a t-distributed error."""

    difference: float  # log ratio, positive: slower
    standard_error: float
    degrees_of_freedom: float
    tolerance: float  # as given: 0.02 is 2 %

    def critical(self, level: float) -> float:
        """Return the smallest log ratio that is a significant slow-down of at least the tolerance.

        Two conditions must hold, so false alarms are rarer than ``level`` where sessions are quiet.
        """
        significant = upper_session(self.degrees_of_freedom, level) * self.standard_error
        return max(math.log1p(self.tolerance), significant)

    @property
    def chance(self) -> float:
        """The probability of a session as slow as this one if nothing changed."""
        if self.standard_error == 0:
            return 0.0 if self.difference > 0 else 1.0
        score = self.difference / self.standard_error
        chance = float(special.stdtr(self.degrees_of_freedom, -score))
        if score <= _FAMILIAR:
            return chance
        return max(chance, float(special.stdtr(_TAIL_DF, -score * _TAIL_SCALE)))

    def slower(self, level: float) -> bool:
        """Return whether the current session is significantly slower, by at least the tolerance."""
        return self.difference >= self.critical(level)

    def faster(self, level: float) -> bool:
        """Return whether the current session is significantly faster, by at least the tolerance."""
        return -self.difference >= self.critical(level)

    def passes(self, level: float) -> bool:
        """Return whether the ratio is below 1 + 2 tolerance, with an error rate of ``level``."""
        return self.upper(level) < 1 + 2 * self.tolerance

    def upper(self, level: float) -> float:
        """Return the one-sided upper confidence bound of the ratio, with that error rate."""
        margin = upper_t(self.degrees_of_freedom, level) * self.standard_error
        return math.exp(min(self.difference + margin, 300.0))  # it stays finite

    @property
    def margin(self) -> float:
        """The half-width of the two-sided 99 % interval, on the log scale."""
        return upper_t(self.degrees_of_freedom, PASS_LEVEL) * self.standard_error

    @property
    def ratio(self) -> float:
        return math.exp(self.difference)

    @property
    def interval(self) -> tuple[float, float]:
        """The two-sided 99 % confidence interval of the ratio."""
        margin = min(self.margin, 300.0)  # exp stays finite
        return math.exp(self.difference - margin), math.exp(self.difference + margin)

    def minimum_detectable(self, level: float) -> float:
        """Return the minimum detectable effect (power 90 %) at ``level``, as a fraction."""
        beta = upper_t(self.degrees_of_freedom, 1 - POWER) * self.standard_error
        return math.expm1(min(self.critical(level) + beta, 300.0))


def upper_t(degrees_of_freedom: float, level: float) -> float:
    """Return the upper quantile of Student's t at ``level``.

    With infinite degrees of freedom it is the quantile of the normal law.
    """
    return -float(special.stdtrit(degrees_of_freedom, level))


def upper_session(degrees_of_freedom: float, level: float) -> float:
    """Return the upper quantile of a session's difference, in standard errors.

    It is that of Student's t, for a spread that is estimated, and at least that of the heavy tail
    of sessions, however well the spread is known (``benchmarks/months.py`` measures it).
    """
    student = upper_t(degrees_of_freedom, level)
    return student if level >= _TAIL_LEVEL else max(student, upper_t(_TAIL_DF, level) / _TAIL_SCALE)


def upper_f(numerator_df: float, denominator_df: float, level: float) -> float:
    """Return the upper quantile of Fisher's F at ``level``."""
    return float(special.fdtri(numerator_df, denominator_df, 1 - level))
