"""The trend of a metric: its steps, its drifts, and its distance from the first sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.metric_history import REFERENCE_SESSIONS
from ddp_perf.history.piecewise_fit import PiecewiseFit
from ddp_perf.history.segmentation import (
    LEAST_LEVEL,
    SD_EFFICIENCY,
    find_moves,
    residual_sd,
)
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import PASS_LEVEL, upper_t
from ddp_perf.stats.rule.session_variance import session_correlation

_SLOWER_LEVEL = 0.001  # probability that one look calls a quiet, normal series slower


class TrendChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step, or a drift over several sessions. Sessions are counted from 0."""

    first: int  # the first session that differs from the level before
    last: int  # the first session at the new level; for a step the same session as `first`
    earliest: int  # for a step: the earliest session at which it can have happened …
    latest: int  # … and the latest (95 % of the likelihood); for a drift: its ends
    ratio: float  # new level ÷ old
    interval: tuple[float, float]  # 99 %

    @property
    def is_drift(self) -> bool:
        """True if the change takes several sessions."""
        return self.last > self.first

    @property
    def per_session(self) -> float:
        """The ratio of one session to the session before it, during the change."""
        return math.exp(math.log(self.ratio) / (self.last - self.first + 1))


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """The newest sessions compared with the first sessions, which are never replaced."""

    reference_sessions: int
    newest_sessions: int
    ratio: float  # of the medians of the two
    interval: tuple[float, float]  # 99 %
    slower: bool  # at a level that suits many looks at a series, so not by the interval
    faster: bool


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """The changes in one metric of one case; lower is better."""

    changes: tuple[TrendChange, ...]
    distance: Distance | None  # None: fewer than six sessions follow the reference
    session_sd: float  # of a session around the fitted levels and drifts, as a fraction
    levels: tuple[float, ...]  # the fitted level of each session, in the unit of the values


def find_trend(values: Sequence[float], *, reference: int = REFERENCE_SESSIONS) -> Trend:
    """Find the steps and drifts in `values`: one positive figure a session, oldest first.

    Raises ValueError if there is no value, or if a value is not finite and positive.
    """
    if not len(values) or any(not 0 < value < math.inf for value in values):  # true of NaN as well
        raise ValueError("a history needs sessions, each with a finite and positive figure")
    logs = np.log(np.asarray(values, dtype=float))
    fitted = find_moves(logs)
    levels = fitted.levels
    return Trend(
        changes=tuple(_change(fitted, number) for number in range(len(fitted.moves))),
        distance=_distance(logs, fitted, reference),
        session_sd=residual_sd(logs - levels),
        levels=tuple(np.exp(levels).tolist()),
    )


def _change(fitted: PiecewiseFit, number: int) -> TrendChange:
    move, size = fitted.moves[number], float(fitted.sizes[number])
    is_drift = move.last > move.first
    earliest, latest = (move.first, move.last) if is_drift else fitted.place(number)
    margin = upper_t(fitted.degrees_of_freedom, PASS_LEVEL) * float(fitted.errors[number])
    return TrendChange(
        first=move.first,
        last=move.last,
        earliest=earliest,
        latest=latest,
        ratio=math.exp(size),
        interval=(math.exp(size - margin), math.exp(size + margin)),
    )


def _distance(logs: Floats, fitted: PiecewiseFit, reference: int) -> Distance | None:
    """Compare the newest sessions with the first ones; None with too few sessions.

    The noise is that around the fitted levels, so that a drift is no part of it. Both levels are
    medians: one bad session among the first must not make all later sessions faster. For normal
    sessions the variance of the median is π/2 times that of the mean.
    """
    if len(logs) < reference + LEAST_LEVEL:
        return None
    difference = float(np.median(logs[-LEAST_LEVEL:]) - np.median(logs[:reference]))
    residual = logs - fitted.levels
    correlation = session_correlation(residual)
    of_means = (1 + correlation) / (1 - correlation) * (1 / reference + 1 / LEAST_LEVEL)
    error = residual_sd(residual) * math.sqrt(math.pi / 2 * of_means)
    df = SD_EFFICIENCY * fitted.degrees_of_freedom
    least, margin = upper_t(df, _SLOWER_LEVEL) * error, upper_t(df, PASS_LEVEL) * error
    return Distance(
        reference_sessions=reference,
        newest_sessions=LEAST_LEVEL,
        ratio=math.exp(difference),
        interval=(math.exp(difference - margin), math.exp(difference + margin)),
        slower=difference > least,
        faster=difference < -least,
    )
