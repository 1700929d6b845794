"""Variance components of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ddp_perf.stats.rule.reference import level_variance
from ddp_perf.stats.rule.session_variance import SessionSpread


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of a session's level because what it measured was not measured before."""

    variance: float
    degrees_of_freedom: float


NOT_SAMPLED = Sampling(variance=0.0, degrees_of_freedom=1.0)


class VarianceComponents(msgspec.Struct, frozen=True, kw_only=True):
    """The variance components of a difference (log scale), and the counts that divide them."""

    spread: SessionSpread  # of a baseline session's level: from the session and its launches
    baseline_launch_noise: float  # the part of it that comes from the launches
    launch_variance: float
    launch_df: int
    restless: bool = False  # the launch variance is of this session alone: the others differ less
    launches: int  # of the current session, in the fast mode
    sessions: int
    reference_sessions: int
    control: float  # because the slope on the control is uncertain
    sampling: Sampling = NOT_SAMPLED  # of the current session

    @property
    def session_variance(self) -> float:
        """The between-session variance: what the launches do not explain."""
        return max(0.0, self.spread.variance - self.baseline_launch_noise)

    def variance(self, launches: int, reference_sessions: int) -> float:
        """Return the variance of the difference after so many launches and reference sessions."""
        return (
            self.session_variance
            + self.launch_variance / launches
            + self.reference_variance(reference_sessions)
            + self.control
            + self.sampling.variance
        )

    def reference_variance(self, sessions: int) -> float:
        """Return the variance of the median of so many baseline sessions."""
        return level_variance(self.spread, sessions)

    @property
    def standard_error(self) -> float:
        """The standard error of the difference, on the log scale."""
        variance = self.variance(self.launches, self.reference_sessions)
        return math.sqrt(variance)

    def information(self, looks: Sequence[int]) -> list[float]:
        """Return the information at each look, as a share of the information at the last one.

        ``looks`` are numbers of launches. The alpha spending over the looks needs the shares.
        The part of the variance that no launch reduces is halved: it is estimated from few
        sessions, and looks that are taken for more correlated than they are alarm too often.
        """
        shared = (
            self.session_variance
            + self.reference_variance(self.reference_sessions)
            + self.control
            + self.sampling.variance
        )
        variances = [shared / 2 + self.launch_variance / launches for launches in looks]
        return [variances[-1] / variance if variance else 1.0 for variance in variances]

    @property
    def degrees_of_freedom(self) -> float:
        """The degrees of freedom of the difference."""
        return self.degrees_of_freedom_of(self.launches)

    def degrees_of_freedom_of(self, launches: int) -> float:
        """Return the degrees of freedom after so many launches: of sessions, or of both.

        The launches count if this session has fewer of them than the baseline sessions, or if they
        differ more.
        """
        excess = self.launch_variance / launches - self.baseline_launch_noise
        sessions = self.spread.degrees_of_freedom
        launch_df = launches - 1 if self.restless else self.launch_df
        parts = []
        if excess > 0 and launch_df:
            parts.append((excess, float(launch_df)))
        if self.sampling.variance:
            parts.append((self.sampling.variance, self.sampling.degrees_of_freedom))
        if not parts:
            return sessions
        total = self.variance(launches, self.reference_sessions)
        rest = total - sum(variance for variance, _ in parts)
        return satterthwaite((rest, sessions), *parts)


def satterthwaite(*parts: tuple[float, float]) -> float:
    """Return the degrees of freedom of a sum of variances (Satterthwaite 1946).

    ``parts`` are pairs of a variance and its degrees of freedom; 1 if all variances are 0.
    """
    total = sum(variance for variance, _ in parts)
    spent = sum(variance**2 / df for variance, df in parts)
    return total**2 / spent if spent else 1.0
