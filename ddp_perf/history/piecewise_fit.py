"""A series of sessions as one level and its moves (steps and drifts), by least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.session_variance import session_correlation

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
