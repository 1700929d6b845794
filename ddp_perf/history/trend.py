"""The trend of a case's sessions: its steps and drifts, with the commits and versions of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.history.records import SessionInfo, TimeSeries
from ddp_perf.session.gate.comparability import changes
from ddp_perf.stats.interval import upper_t
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import PASS_LEVEL
from ddp_perf.stats.rule.levels import session_correlation

# A series of sessions as one level and its moves (steps and drifts), by least squares.


SMALLEST_SD = 1e-7  # figures are stored with 7 digits
_AROUND = 10  # sessions on each side of a move that its local variance is taken from


class Move(msgspec.Struct, frozen=True):
    """A step if both sessions are the same; else a drift along a straight line."""

    first: int  # the first session that differs from the level before
    last: int  # the first session at the level after

    def shape(self, sessions: int) -> Floats:
        """Return the part of the move that is done, by session: 0 before it, 1 after it."""
        part = (np.arange(sessions) - self.first + 1) / (self.last - self.first + 1)
        return np.clip(part, 0.0, 1.0)


class PiecewiseFit(msgspec.Struct, frozen=True, kw_only=True):
    """The fit ``sessions = level + Σ size × shape + residual``, with the noise of the residual."""

    moves: tuple[Move, ...]  # in order, not overlapping
    levels: Floats  # the sessions without the residual
    sizes: Floats  # of each move, on the log scale
    errors: Floats  # standard error of each size
    residual: Floats
    variance: float  # of a session
    inflation: float  # of a mean's variance by the correlation r of sessions: (1 + r) ÷ (1 − r)

    @property
    def degrees_of_freedom(self) -> int:
        """The number of sessions without the level and the moves."""
        return len(self.residual) - len(self.moves) - 1

    def p_values(self) -> list[float]:
        """Return the p value of each move, by a two-sided t test of its size.

        The variance is that of all sessions, or of the sessions around the move if it is larger.
        """
        values = []
        for move, size, error in zip(self.moves, self.sizes, self.errors, strict=True):
            around = max(1.0, self._variance_around(move) / self.variance)
            t = abs(size) / (error * math.sqrt(around))
            values.append(2 * float(special.stdtr(self.degrees_of_freedom, -t)))
        return values

    def place(self, number: int, mass: float = 0.95) -> tuple[int, int]:
        """Return the first and the last session at which step `number` can have happened.

        This is the shortest run of sessions around the step that contains `mass` of the likelihood
        of all places between the step's neighbours.
        """
        move, n = self.moves[number], len(self.residual)
        start = self.moves[number - 1].last if number > 0 else 0
        end = self.moves[number + 1].first if number + 1 < len(self.moves) else n
        step = self.sizes[number] * move.shape(n)
        gain = split_gain((self.residual + step)[start:end])
        weight = np.exp((gain - gain.max()) / (2 * self.variance * self.inflation))
        low = high = move.first - start - 1
        while weight[low : high + 1].sum() < mass * weight.sum():
            before = weight[low - 1] if low > 0 else -1.0
            after = weight[high + 1] if high + 1 < len(weight) else -1.0
            low, high = (low - 1, high) if before >= after else (low, high + 1)
        return start + low + 1, start + high + 1

    def _variance_around(self, move: Move) -> float:
        start, end = max(0, move.first - _AROUND), min(len(self.residual), move.last + _AROUND)
        near = self.residual[start:end]
        inside = sum(start < other.first < end for other in self.moves)
        df = len(near) - 1 - inside
        return float(near @ near) / df if df > 0 else 0.0


def fit(sessions: Floats, moves: Sequence[Move]) -> PiecewiseFit:
    """Fit a level and the size of each move to `sessions`, which are logs.

    There must be more sessions than moves.
    """
    n = len(sessions)
    design = np.column_stack([np.ones(n), *(move.shape(n) for move in moves)])
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ (design.T @ sessions)
    levels = design @ coefficients
    residual = sessions - levels
    df = n - len(moves) - 1
    squares = float(residual @ residual)
    variance = max(squares / df if df > 0 else 0.0, SMALLEST_SD**2)
    correlation = session_correlation(residual)
    inflation = (1 + correlation) / (1 - correlation)
    return PiecewiseFit(
        moves=tuple(moves),
        levels=levels,
        sizes=coefficients[1:],
        errors=np.sqrt(variance * inflation * np.diag(inverse)[1:]),
        residual=residual,
        variance=variance,
        inflation=inflation,
    )


def split_gain(sessions: Floats) -> Floats:
    """Return by how much a step lowers the sum of squares, for each of its possible places.

    The places of n sessions are: before session 1, before session 2, … The result has n − 1 values.
    """
    n, count = len(sessions), np.arange(1, len(sessions))
    left = np.cumsum(sessions)[:-1]
    difference = left / count - (sessions.sum() - left) / (n - count)
    gain: Floats = np.square(difference) * count * (n - count) / n
    return gain


# Change points of a series of sessions: proposed by least squares, then tested.
#
# The proposals are the steps of the exact penalised segmentation (optimal partitioning: Jackson et
# al., "An algorithm for optimal partitioning of data on an interval", IEEE Signal Processing
# Letters 12(2), 2005). A split between n1 and n2 sessions whose means differ by D lowers the sum of
# squares by ``D² n1 n2/(n1 + n2)``. Divided by the variance of the noise, this is the square of a z
# score. There are n − 1 places to split. With ``z²(α / 2(n − 1))`` as penalty (Bonferroni) a quiet
# series of normal sessions has a step with probability α at most. Steps of one direction that a
# straight line explains better become one drift. Real sessions are worse than normal ones: they are
# correlated, there are outliers, and some weeks are noisier. So one session alone makes no step
# (the median of three), and each move is tested again with the correlation and variance of the
# residuals.
#
# A series is looked at after each of its sessions, and a change that one of many looks finds by
# chance is mostly a few sessions at an end of the series. So α is small, and a level has six
# sessions at least. `benchmarks/drift.py` measures both rates: that of one look, and that of all
# looks at a growing series.


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


# The trend of a metric: its steps, its drifts, and its distance from the first sessions.


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


# The analysis of a case's sessions: its trend, and the commits and versions of each change.


class ChangeRange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and the sessions before and after it."""

    change: TrendChange
    before: SessionInfo  # the last session that is certainly before it
    after: SessionInfo  # the first session that is certainly after it
    versions: tuple[str, ...]  # differences of machine and software between the two

    @property
    def is_same_commit(self) -> bool:
        """True if both sessions have the same commit, and it is recorded."""
        commits = (self.before.environment.commit, self.after.environment.commit)
        return None not in commits and commits[0] == commits[1]


class CaseHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A series, and the trend of its usable sessions."""

    series: TimeSeries
    trend: Trend | None  # None: there is no usable session
    ranges: tuple[ChangeRange, ...] = ()


def case_history(series: TimeSeries) -> CaseHistory:
    """Find the trend of a series, and the range of each change.

    Disturbed sessions, and those slowed on purpose, are left out.
    """
    sessions = series.sound()
    if not sessions:
        return CaseHistory(series=series, trend=None)
    trend = find_trend(
        [session.figure.value for session in sessions if session.figure.value is not None]
    )
    ranges = []
    for change in trend.changes:
        before, after = sessions[change.earliest - 1].session, sessions[change.latest].session
        ranges.append(
            ChangeRange(
                change=change,
                before=before,
                after=after,
                versions=tuple(changes(before.environment, after.environment)),
            )
        )
    return CaseHistory(series=series, trend=trend, ranges=tuple(ranges))


def newest_work(found: Iterable[TimeSeries]) -> list[TimeSeries]:
    """Return the series of the work that was measured last, for each accelerator and case.

    Series without a session are left out.
    """
    newest: dict[tuple[str, str], TimeSeries] = {}
    for series in found:
        key = series.case.accelerator, series.case.case_id
        if series.sessions and (key not in newest or _last(series) > _last(newest[key])):
            newest[key] = series
    return list(newest.values())


def _last(series: TimeSeries) -> str:
    return series.sessions[-1].session.date
