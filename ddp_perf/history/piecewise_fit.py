"""A series of sessions as one level and the moves away from it, fitted by least squares."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.session_variance import session_correlation

SMALLEST_SD = 1e-7  # figures are kept to 7 digits
_AROUND = 10  # sessions on either side of a move that tell how restless it was there


class Move(msgspec.Struct, frozen=True):
    """A step, where both sessions are one; else a straight line, a drift."""

    first: int  # the first session that differs from the level before
    last: int  # the first session at the level after

    def shape(self, sessions: int) -> Floats:
        """0 before the move, 1 after it, by session."""
        part = (np.arange(sessions) - self.first + 1) / (self.last - self.first + 1)
        return np.clip(part, 0.0, 1.0)


class PiecewiseFit(msgspec.Struct, frozen=True, kw_only=True):
    """``sessions = level + Σ size × shape + residual``, and what the residual says of the noise."""

    moves: tuple[Move, ...]  # in order, none within another
    levels: Floats  # the sessions without the residual
    sizes: Floats  # of each move, on the log scale
    errors: Floats  # standard error of each size
    residual: Floats
    variance: float  # of a session
    inflation: float  # (1 + r) ÷ (1 − r): what the correlation r of sessions costs a mean

    @property
    def degrees_of_freedom(self) -> int:
        return len(self.residual) - len(self.moves) - 1

    def p_values(self) -> list[float]:
        """Of each move, by a two-sided t test of its size.

        The variance is that of all sessions, or of those around it where it is larger.
        """
        values = []
        for move, size, error in zip(self.moves, self.sizes, self.errors, strict=True):
            around = max(1.0, self._variance_around(move) / self.variance)
            t = abs(size) / (error * math.sqrt(around))
            values.append(2 * float(special.stdtr(self.degrees_of_freedom, -t)))
        return values

    def place(self, number: int, mass: float = 0.95) -> tuple[int, int]:
        """The first and the last session at which step ``number`` may have come.

        The shortest run of sessions around it that holds ``mass`` of the likelihood of all places
        between its neighbours.
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
    """``sessions``: logs, more of them than moves."""
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
    """By how much a step lowers the sum of squares, for each place it can have: before session 1,
    before session 2, …
    """
    n, count = len(sessions), np.arange(1, len(sessions))
    left = np.cumsum(sessions)[:-1]
    difference = left / count - (sessions.sum() - left) / (n - count)
    gain: Floats = np.square(difference) * count * (n - count) / n
    return gain
