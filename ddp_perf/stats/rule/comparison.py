"""The comparison that the rule makes: its options, its inputs, its control and suspicion."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.interval import upper_t
from ddp_perf.stats.level import launch_level
from ddp_perf.stats.robust import Floats

# The difference of two levels, its error, and what may be concluded from it.


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


# Input of the judge: options in their range, and values that a measurement can give.


Launches = Sequence[Sequence[float]]  # launches × values of one session
Figures = Sequence[float]  # one figure for each launch of one session


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of a session's level because what it measured was not measured before."""

    variance: float
    degrees_of_freedom: float


NOT_SAMPLED = Sampling(variance=0.0, degrees_of_freedom=1.0)


class JudgeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a judgement.

    ``session_levels`` has the number of the level of each session (default: one level). The
    highest number is in force, and its first ``reference`` sessions (default: all) set it;
    sessions of other levels only inform the variance. ``prior`` is the spread of the machine's
    sessions, estimated from its other cases. ``looks`` are the planned numbers of launches,
    rising, at which an undecided case is judged again; all looks together then keep ``alpha``, and
    the level of PASS. ``sampling`` is the variance of what this session measured for the first
    time: new nodes.
    """

    tolerance: float
    alpha: float
    reference: int | None = None
    prior: SessionPrior | None = None
    looks: Sequence[int] = ()
    session_levels: Sequence[int] = ()
    sampling: Sampling = NOT_SAMPLED

    def check(self, sessions: int) -> None:
        """Raise ValueError, which names the option, if one is out of its range."""
        if not 0 < self.tolerance < 1:
            raise ValueError(
                f"tolerance must lie between 0 and 1 (0.02 is 2 %), not {self.tolerance!r}"
            )
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must lie between 0 and 0.5, not {self.alpha!r}")
        if self.reference is not None and self.reference < 1:
            raise ValueError(f"reference must be at least one session, not {self.reference!r}")
        if any(later <= look for look, later in itertools.pairwise([0, *self.looks])):
            raise ValueError(f"looks (numbers of launches) must rise, not {list(self.looks)!r}")
        if self.session_levels and len(self.session_levels) != sessions:
            raise ValueError(
                f"session_levels must have the {sessions} sessions of the baseline,"
                f" not {len(self.session_levels)}"
            )
        prior = self.prior
        if prior is not None and not (math.isfinite(prior.sd) and prior.sd >= 0):
            raise ValueError(f"a prior's sd must be finite and not negative, not {prior.sd!r}")
        if prior is not None and not prior.degrees_of_freedom >= 0:
            raise ValueError(f"a prior's df must not be negative, not {prior.degrees_of_freedom!r}")


def launch_levels(launches: Launches) -> list[float]:
    """Return one figure for each launch: its level.

    A value that no measurement gives (NaN, infinite, zero or negative) is the figure of its
    launch, so that the judge sees it. Raises ValueError for a launch without a value.
    """
    return [_figure(launch, launch_level) for launch in launches]


def launch_medians(launches: Launches) -> list[float]:
    """Return the median of each launch, and treat its values as `launch_levels` does."""
    return [_figure(launch, statistics.median) for launch in launches]


def first_empty_launch(sessions: Sequence[tuple[str, Launches]]) -> str | None:
    """Return a sentence on the first launch without a value, or None if there is none.

    ``sessions`` are pairs of a name, for the sentence, and its launches.
    """
    for name, launches in sessions:
        for number, launch in enumerate(launches, start=1):
            if not len(launch):
                return f"launch {number} of {name} has no value"
    return None


def first_invalid_figure(sessions: Sequence[tuple[str, Figures]]) -> str | None:
    """Return why these sessions cannot be judged, in one sentence, or None if they can.

    ``sessions`` are pairs of a name, for the sentence, and the figures of its launches.
    """
    for name, figures in sessions:
        if not len(figures):
            return f"{name} has no launch"
        if math.isfinite(sum(figures)) and min(figures) > 0:
            continue  # the quick way; NaN and infinity show in the sum
        for number, value in enumerate(figures, start=1):
            if not _is_measurable(value):
                return (
                    f"launch {number} of {name} has the value {value};"
                    " a value must be finite and positive"
                )
    return None


def _figure(launch: Sequence[float], figure: Callable[[Sequence[float]], float]) -> float:
    if not (math.isfinite(sum(launch)) and min(launch) > 0):  # else no value needs a look
        for value in launch:
            if not _is_measurable(value):
                return float(value)
    return float(figure(launch))


def _is_measurable(value: float) -> bool:
    return 0 < value < math.inf  # False for NaN as well


# The slope of a case on the control: how far the control's movement explains the case's.
#
# If the control were simply subtracted, its own noise would be added: on recorded gloo launches
# that raised the sd of a session from 2.9 to 7.3 %. A slope fitted to eight sessions is itself
# noisy. So the slope is shrunken: each slope of a grid from 0 to 1 is weighted by how well it
# explains the sessions. Before any session, half of the weight is on 0 (the control is of no use),
# a quarter on 1 (another clock: everything moves alike) and a quarter in between.


_SLOPES = np.linspace(0.0, 1.0, 41)
_PRIOR = np.full(41, 0.25 / 39)
_PRIOR[0], _PRIOR[-1] = 0.5, 0.25
_BEYOND_LEVEL = 0.001


class ControlSlope(msgspec.Struct, frozen=True, kw_only=True):
    """The slope of a case on the control, from the baseline sessions."""

    mean: float
    variance: float
    scale: float  # of the residuals at the mean slope, to their expected sum of squares


class ControlMove(msgspec.Struct, frozen=True, kw_only=True):
    """The movement of the control in the current session, on the log scale."""

    shift: float  # against the control's reference sessions
    beyond: bool  # further than in any session before: how the case follows is unknown
    slope: float  # how far the case follows
    explained: float  # of the case's difference
    variance: float  # of what is explained


def fit_slope(levels: Floats, control: Floats) -> ControlSlope:
    """Fit the slope of the case's levels on the control's, both centred logs by baseline session.

    The weight of a slope b is ``RSS(b)^(−(n−1)/2)``: the likelihood of normal residuals with their
    variance integrated out under the prior 1/σ² (Box & Tiao 1973, section 2.8).
    """
    residual = levels[:, None] - control[:, None] * _SLOPES
    squares = np.square(residual).sum(axis=0)
    floor = max(float(squares.max()) * 1e-12, np.finfo(float).tiny)
    log_weight = np.log(_PRIOR) - 0.5 * (len(levels) - 1) * np.log(np.maximum(squares, floor))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = float(weight @ _SLOPES)
    residual = levels - mean * control
    left = float(residual @ residual)
    return ControlSlope(
        mean=mean,
        variance=float(weight @ np.square(_SLOPES - mean)),
        scale=(float(weight @ squares) / left) ** 0.5 if left > floor else 1.0,
    )


def currents_move(
    slope: ControlSlope, moves: Floats, shift: float, *, levels: int, reference: int
) -> ControlMove:
    """Return what the control's ``shift`` in this session explains of the case.

    ``moves`` are the control's baseline sessions around the means of their ``levels``, and
    ``shift`` is this session against its mean over so many ``reference`` sessions. Small moves of a
    control are mostly its own noise, so the fitted slope is near 0. A shift beyond them (t test at
    0.1 %) is a movement of the machine, and the fitted slope does not show how the case follows it:
    the slope is then as uncertain as before any session.
    """
    df = len(moves) - levels
    beyond = False
    if df > 0:
        error = float(moves @ moves) / df * (1 + 1 / reference)
        beyond = abs(shift) > error**0.5 * upper_t(df, _BEYOND_LEVEL)
    mean = float(_PRIOR @ _SLOPES) if beyond else slope.mean
    variance = float(_PRIOR @ np.square(_SLOPES - mean)) if beyond else slope.variance
    return ControlMove(
        shift=shift,
        beyond=beyond,
        slope=mean,
        explained=mean * shift,
        variance=variance * shift**2,
    )


# Sessions that are suspect in a row: how many of them prove a regression.


SUSPECT_LEVEL = 0.01
# The share of a verdict's false-alarm rate that is spent on runs of suspect sessions. Each length
# of a run has half of it, because their alarms overlap. A smaller share costs part of a session.
# The rest is for the test of each session by itself.
_SHARE = 0.25
# The probability that a session was suspect before one that is, if nothing changed. It is not
# SUSPECT_LEVEL: sessions share their reference, whose error gives their differences a correlation
# of 0.2, and may be correlated themselves. It covers a correlation of the differences of 0.4.
REPEATED = 0.1


def sessions_to_confirm(chance: float, alpha: float) -> int:
    """Return how many suspect sessions in a row are a regression.

    ``chance`` is the probability of the newest one if nothing changed. A quarter of the verdict's
    false-alarm rate ``alpha`` is spent on such runs: ``chance × 0.1^(n − 1) ≤ alpha ÷ 8``. At least
    two.
    """
    if chance == 0:
        return 2
    further = math.log(_SHARE / 2 * alpha / chance) / math.log(REPEATED)
    return max(2, 1 + math.ceil(further - 1e-9))


def level_of_one_session(alpha: float) -> float:
    """Return the part of a verdict's false-alarm rate that is for the session by itself."""
    return (1 - _SHARE) * alpha
