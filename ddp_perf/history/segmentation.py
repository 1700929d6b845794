"""Change points of a series of sessions: proposed by least squares, then tested.

The proposals are the steps of the exact penalised segmentation (optimal partitioning: Jackson et
al., "An algorithm for optimal partitioning of data on an interval", IEEE Signal Processing Letters
12(2), 2005). A split between n1 and n2 sessions whose means differ by D lowers the sum of squares
by ``D² n1 n2/(n1 + n2)``. Divided by the variance of the noise, this is the square of a z score.
There are n − 1 places to split. With ``z²(α / 2(n − 1))`` as penalty (Bonferroni) a quiet series
of normal sessions has a step with probability α at most. Steps of one direction that a straight
line explains better become one drift. Real sessions are worse than normal ones: they are
correlated, there are outliers, and some weeks are noisier. So one session alone makes no step (the
median of three), and each move is tested again with the correlation and variance of the residuals.

A series is looked at after each of its sessions, and a change that one of many looks finds by
chance is mostly a few sessions at an end of the series. So α is small, and a level has six
sessions at least. `benchmarks/drift.py` measures both rates: that of one look, and that of all
looks at a growing series.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.history.piecewise_fit import SMALLEST_SD, Move, PiecewiseFit, fit
from ddp_perf.stats.robust import Floats

FALSE_ALARMS = 1e-4  # probability that one look at a quiet, normal series finds any move
LEAST_LEVEL = 6  # sessions that a level has at least
_SD_QUANTILE = 0.6827  # of the absolute values of a normal distribution: one standard deviation
# Of that quantile p as an estimate of the sd, for many normal values: 2 φ(1)² ÷ p(1 − p). Its
# error is that of the usual estimate from 0.54 times as many values.
SD_EFFICIENCY = 0.54
_PLACES = 60  # tried for each end of a drift; long stretches: every second, third, … session


def find_moves(sessions: Floats, *, false_alarms: float = FALSE_ALARMS) -> PiecewiseFit:
    """Find the steps and drifts in `sessions`, which are logs, oldest first.

    Fewer than two levels of sessions have no move. Raises ValueError if a session is not finite.
    """
    if not np.isfinite(sessions).all():
        raise ValueError("a session's level must be finite")
    if len(sessions) < 2 * LEAST_LEVEL:
        return fit(sessions, [])
    level = false_alarms / (len(sessions) - 1)
    penalty = float(special.ndtri(level / 2)) ** 2
    scaled = median_of_three(sessions) / noise_sd(sessions)
    moves = list(_propose(scaled - scaled.mean(), penalty))
    while True:
        fitted = fit(median_of_three(sessions), moves)
        p_values = fitted.p_values()
        if not p_values or max(p_values) <= level:
            return fitted
        del moves[int(np.argmax(p_values))]


def median_of_three(sessions: Floats) -> Floats:
    """Return each session, or the nearer of its two neighbours if it lies beyond both.

    A step keeps its place. One outlier disappears, even if it is the newest session.
    """
    before = np.concatenate([sessions[2:3], sessions[:-1]])
    after = np.concatenate([sessions[1:], sessions[-3:-2]])
    return np.clip(sessions, np.minimum(before, after), np.maximum(before, after))


def noise_sd(sessions: Floats) -> float:
    """Estimate the sd from successive differences, which a step or a drift changes little."""
    return residual_sd(np.diff(sessions) / math.sqrt(2))


def residual_sd(deviations: Floats) -> float:
    """Return the quantile of the absolute deviations that is one sd of a normal distribution.

    If that quantile is zero, return the root mean square instead.
    """
    typical = float(np.quantile(np.abs(deviations), _SD_QUANTILE))
    return max(typical or float(np.sqrt(np.mean(np.square(deviations)))), SMALLEST_SD)


def _propose(sessions: Floats, penalty: float) -> Iterator[Move]:
    """Yield moves of `sessions`, in units of their noise. A drift costs as much as two steps."""
    bounds = cut(sessions, penalty)
    for run in _runs(sessions, bounds):
        start, end = bounds[run[0] - 1], bounds[run[-1] + 1]
        stretches = [sessions[bounds[n] : bounds[n + 1]] for n in range(run[0] - 1, run[-1] + 1)]
        steps = sum(float(np.square(stretch - stretch.mean()).sum()) for stretch in stretches)
        drift, squares = _best_drift(
            sessions[start:end], bounds[run[0]] - start, bounds[run[-1]] - start
        )
        if squares + 2 * penalty < steps + len(run) * penalty:
            yield Move(start + drift.first, start + drift.last)
        else:
            yield from (Move(bounds[n], bounds[n]) for n in run)


def cut(sessions: Floats, penalty: float) -> list[int]:
    """Cut the sessions into the stretches with the least sum of squares around their means.

    Each stretch costs `penalty` and has `LEAST_LEVEL` sessions at least. Return the bounds: 0, the
    first session of every further stretch, and the number of sessions. It takes n² operations, 10
    ms for 1,000 sessions: each end is compared with all starts at once.
    """
    n, count = len(sessions), np.arange(len(sessions) + 1)
    sums, squares = (np.concatenate([[0.0], np.cumsum(power)]) for power in (sessions, sessions**2))
    # With the start s and the end e a stretch costs Σx² − (Σx)²/(e − s).
    least, start_of = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=int)
    least[0] = 0.0
    for end in range(LEAST_LEVEL, n + 1):
        starts = end - LEAST_LEVEL + 1
        level = np.square(sums[end] - sums[:starts]) / (end - count[:starts])
        cost = least[:starts] - squares[:starts] - level
        start_of[end] = np.argmin(cost)
        least[end] = cost[start_of[end]] + squares[end] + penalty
    bounds = [n]
    while bounds[0] > 0:
        bounds.insert(0, int(start_of[bounds[0]]))
    return bounds


def _runs(sessions: Floats, bounds: Sequence[int]) -> Iterator[list[int]]:
    """Yield runs of steps of one direction, each step by the number of the stretch it begins."""
    means = [float(sessions[start:end].mean()) for start, end in itertools.pairwise(bounds)]
    for _, run in itertools.groupby(range(1, len(means)), lambda n: means[n] > means[n - 1]):
        yield list(run)


def _best_drift(sessions: Floats, first_step: int, last_step: int) -> tuple[Move, float]:
    """Return the drift with the least sum of squares, and that sum.

    The drift begins before the first step and ends after the last step.
    """
    n, time = len(sessions), np.arange(len(sessions))
    total = float(np.square(sessions - sessions.mean()).sum())
    best, least = Move(first_step, last_step), math.inf
    lasts = _places(last_step, n)
    for first in _places(1, first_step + 1).tolist():
        shape = np.clip((time - first + 1) / (lasts[:, None] - first + 1), 0.0, 1.0)
        shape -= shape.mean(axis=1, keepdims=True)
        left = total - np.square(shape @ sessions) / np.square(shape).sum(axis=1)
        number = int(np.argmin(left))
        if left[number] < least:
            best, least = Move(first, int(lasts[number])), float(left[number])
    return best, least


def _places(start: int, end: int) -> npt.NDArray[np.intp]:
    return np.arange(start, end, max(1, (end - start) // _PLACES))
