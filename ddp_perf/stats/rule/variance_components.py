"""Where the error of a comparison comes from, and what would make it smaller."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence

import msgspec

from ddp_perf.core.baseline import LEAST_SESSIONS
from ddp_perf.stats.rule.comparison import Comparison, SignificanceLevels
from ddp_perf.stats.rule.session_variance import WIDE_DEFAULT, SessionSpread

_MOST_MORE = 100  # launches or sessions; more than that is no advice


class VarianceComponents(msgspec.Struct, frozen=True, kw_only=True):
    """Variances on the log scale, and the counts that divide them."""

    spread: SessionSpread  # of a baseline session's level: its session and its launches
    baseline_launch_noise: float  # the part of it that comes from the launches
    launch_variance: float
    launch_df: int
    launches: int  # of the current session, in the fast mode
    sessions: int
    reference_sessions: int
    control: float  # from not knowing how far the case follows the control

    @property
    def session_variance(self) -> float:
        return max(0.0, self.spread.variance - self.baseline_launch_noise)

    def variance(self, launches: int, reference_sessions: int) -> float:
        """Of the difference: this session, its launches, the reference, the control."""
        return (
            self.session_variance
            + self.launch_variance / launches
            + self.reference_variance(reference_sessions)
            + self.control
        )

    def reference_variance(self, sessions: int) -> float:
        """Of the mean of so many baseline sessions."""
        return self.spread.variance / self.spread.independent_sessions(sessions)

    @property
    def standard_error(self) -> float:
        variance = self.variance(self.launches, self.reference_sessions)
        return math.sqrt(variance)

    def information(self, looks: Sequence[int]) -> list[float]:
        """What each look knows, after so many launches, as a share of what the last one knows:
        for the split of the false-alarm rate over the looks.

        What sessions add, and no launch takes away, is halved: it is known from few sessions, and
        looks that are thought to hang together more than they do would alarm too often.
        """
        shared = (
            self.session_variance + self.reference_variance(self.reference_sessions) + self.control
        )
        variances = [shared / 2 + self.launch_variance / launches for launches in looks]
        return [variances[-1] / variance if variance else 1.0 for variance in variances]

    @property
    def degrees_of_freedom(self) -> float:
        """Of the sessions; of sessions and launches where this session has few."""
        excess = self.launch_variance / self.launches - self.baseline_launch_noise
        sessions = self.spread.degrees_of_freedom
        if excess <= 0 or self.launch_df == 0:
            return sessions
        rest = self.standard_error**2 - excess
        return satterthwaite((rest, sessions), (excess, self.launch_df))


def launches_to_decide(
    errors: VarianceComponents, now: Comparison, risks: SignificanceLevels
) -> int | None:
    """How many more of this session would decide a comparison, should its ratio stay as it is.

    None where sessions, not launches, are what is missing.
    """
    if errors.spread.assumed:
        return None

    def decided(launches: int) -> bool:
        variance = errors.variance(launches, errors.reference_sessions)
        return _decides(now, variance, now.degrees_of_freedom, risks)

    return _fewest_more(errors.launches, decided)


def sessions_to_decide(
    errors: VarianceComponents, now: Comparison, risks: SignificanceLevels
) -> str:
    """What else would decide it, where no more launches this session do, in words."""

    def decided(sessions: int) -> bool:
        frozen = errors.reference_sessions < errors.sessions
        variance = errors.variance(
            errors.launches, errors.reference_sessions if frozen else sessions
        )
        return _decides(now, variance, now.degrees_of_freedom + sessions - errors.sessions, risks)

    if errors.spread.assumed:
        missing = LEAST_SESSIONS - errors.sessions
        return (
            f"too few sessions to know how they differ ({100 * WIDE_DEFAULT.sd:.0f} % is assumed);"
            f" {missing} more baseline session{'s' if missing > 1 else ''} would tell"
        )
    differ = f"sessions differ by {100 * math.sqrt(errors.session_variance):.1f} %"
    if more := _fewest_more(errors.sessions, decided):
        return (
            f"{differ}, so no more launches of this session can decide it, but about {more} more"
            " baseline "
            f"session{'s' if more > 1 else ''} would"
        )
    return f"{differ}: too much for this tolerance; raise it, or quieten the machine"


def _fewest_more(now: int, decided: Callable[[int], bool]) -> int | None:
    """By bisection, for more never decides less."""
    counts = range(now + 1, now + _MOST_MORE + 1)
    found = bisect.bisect_left(counts, True, key=decided)
    return found + 1 if found < len(counts) else None


def _decides(
    now: Comparison, variance: float, degrees_of_freedom: float, risks: SignificanceLevels
) -> bool:
    then = msgspec.structs.replace(
        now, standard_error=math.sqrt(variance), degrees_of_freedom=degrees_of_freedom
    )
    return then.passes(risks.passing) or then.slower(risks.regression)


def satterthwaite(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each given with its own; 1 where all are 0."""
    total = sum(variance for variance, _ in parts)
    spent = sum(variance**2 / df for variance, df in parts)
    return total**2 / spent if spent else 1.0
