"""The levels of sessions, from their launches, with launches in a slow mode separated.

A launch may fall into a slow mode (an unlucky placement, another algorithm chosen). Its steps are
then tens of per cent slower, which is no evidence about the code. Averaged in, three such launches
in ten hide any regression; with the median of five launches, one session in six is a false alarm.
So the level of a session is the mean of its launches in the fast mode, and the number of launches
in the slow mode is judged separately.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ddp_perf.stats.robust import Floats

Mask = npt.NDArray[np.bool_]

# The distance of two modes, in root mean squares of the fast one's excess over the fastest
# launch of a session. At this distance one normal mode is split in one comparison of 200 with
# nine sessions of five launches; the same cut is then applied to every session.
_SEPARATION = 4.5
_SMALLEST_MODE = 0.25  # share of the launches that the fast mode must have
_SPLITS = 3  # the first one may separate a single outlier from everything else


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """The levels of sessions as logs of the metric, the judged ones last: usually one."""

    fast: Floats  # mean log of the launches in the fast mode
    overall: Floats  # mean log of all launches
    fast_launches: npt.NDArray[np.int64]
    slow_launches: npt.NDArray[np.int64]
    launch_variance: float  # of the log of one launch around its session, fast mode
    launch_df: int
    stored_variance: float  # the same, without the judged sessions
    stored_df: int
    own_variance: float  # the same, of the judged sessions alone
    own_df: int
    slow_gap: float  # log distance from the fast mode to the slow one; 0 with one mode only


def levels_of(sessions: Sequence[Sequence[float]], tolerance: float, *, judged: int = 1) -> Levels:
    """Return the levels of sessions × launches; modes nearer than the tolerance are one mode.

    The last ``judged`` sessions are the judged ones.
    """
    logs = [np.log(figures) for figures in sessions]
    return levels_of_logs(logs, smallest_gap=math.log1p(tolerance), judged=judged)


def levels_of_logs(sessions: Sequence[Floats], *, smallest_gap: float, judged: int = 1) -> Levels:
    """Compute the levels of sessions from the log of each launch's figure.

    Two modes nearer than ``smallest_gap`` (log scale) are taken as one mode. The last ``judged``
    sessions are the judged ones.
    """
    lengths = np.array([len(session) for session in sessions])
    starts = np.cumsum(lengths) - lengths
    launches = np.concatenate(sessions)
    excess = launches - np.repeat(np.minimum.reduceat(launches, starts), lengths)
    cut = _slow_cut(np.sort(excess)[len(sessions) :], smallest_gap)
    is_fast = excess <= cut
    fast_launches = np.add.reduceat(is_fast, starts, dtype=np.int64)
    fast = np.add.reduceat(np.where(is_fast, launches, 0.0), starts) / fast_launches
    around = (launches - np.repeat(fast, lengths))[is_fast]
    launch_df = int(is_fast.sum()) - len(sessions)
    stored, own = np.split(around, [len(around) - int(fast_launches[-judged:].sum())])
    stored_df = len(stored) - (len(sessions) - judged)
    own_df = len(own) - judged
    slow_gap = 0.0 if is_fast.all() else excess[~is_fast].mean() - excess[is_fast].mean()
    return Levels(
        fast=fast,
        overall=np.add.reduceat(launches, starts) / lengths,
        fast_launches=fast_launches,
        slow_launches=lengths - fast_launches,
        launch_variance=float(around @ around) / launch_df if launch_df else 0.0,
        launch_df=launch_df,
        stored_variance=float(stored @ stored) / stored_df if stored_df else 0.0,
        stored_df=stored_df,
        own_variance=float(own @ own) / own_df if own_df else 0.0,
        own_df=own_df,
        slow_gap=float(slow_gap),
    )


def _slow_cut(excess: Floats, smallest_gap: float) -> float:
    """Return where the slow mode begins, as excess over the fastest launch of a session.

    ``excess`` is sorted and leaves out the fastest launches, whose excess is 0 by definition. The
    split into two groups with the least sum of squares (Otsu 1979; exact in one dimension) is made,
    and made again within its lower group. The lowest split that separates two modes counts.
    """
    cut, lower, fewest = math.inf, excess, max(3.0, _SMALLEST_MODE * len(excess))
    for _ in range(_SPLITS):
        if len(lower) <= fewest:
            break
        count, total = np.arange(1, len(lower)), np.cumsum(lower)
        below, above = total[:-1] / count, (total[-1] - total[:-1]) / (len(lower) - count)
        split = int(np.argmax(count * (len(lower) - count) * np.square(above - below)))
        lower, gap = lower[: split + 1], float(above[split] - below[split])
        scale = math.sqrt(float(lower @ lower) / len(lower))
        if len(lower) >= fewest and scale > 0 and gap >= max(_SEPARATION * scale, smallest_gap):
            cut = float(lower[-1])
    return cut


def without_slow_sessions(levels: Levels, count: int) -> Mask:
    """Return a mask of the first ``count`` sessions: which had a launch outside the slow mode.

    A session with no launch in the fast mode looks like one with none in the slow mode, one gap
    higher. It is taken as wholly slow only if its number of launches makes that credible.
    """
    slow, fast = levels.slow_launches[:count], levels.fast_launches[:count]
    if not levels.slow_gap:
        return np.ones(len(fast), dtype=bool)
    share = (slow.sum() + 0.5) / (slow.sum() + fast.sum() + 1)
    above = levels.fast[:count] - np.median(levels.fast[:count])
    off = np.abs(above - levels.slow_gap) < levels.slow_gap / 3
    all_slow: Mask = off & (slow == 0) & (share**fast > 1e-4)
    return ~all_slow


class SlowShare(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of launches in the slow mode, in the current session and in the baseline.

    Slow launches cluster by session: a neighbour, a placement. So a launch is no independent
    evidence of their share, and the sessions' shares are compared, not the launches.
    """

    current: int
    current_launches: int
    baseline: tuple[int, ...]  # of each baseline session
    baseline_launches: tuple[int, ...]

    @property
    def any_slow(self) -> bool:
        """True if any launch is in the slow mode."""
        return self.current + sum(self.baseline) > 0

    @property
    def chance(self) -> float:
        """The probability that this of n + 1 alike sessions has the largest share.

        It is the rank test at the level of the session, never below 1 ÷ (n + 1).
        """
        return self._chance_of(self.current / self.current_launches)

    @property
    def is_largest(self) -> bool:
        """True if every session of the baseline has a smaller share of slow launches."""
        return self._as_large(self.current / self.current_launches) == 0

    @property
    def prevails(self) -> bool:
        """True if most launches are slow, as never before."""
        return self.is_largest and 2 * self.current > self.current_launches

    @property
    def chance_of_all(self) -> float:
        """The probability that every launch of a session is slow, by the same rank."""
        return self._chance_of(1.0)

    def _chance_of(self, share: float) -> float:
        return (self._as_large(share) + 1) / (len(self.baseline) + 1)

    def _as_large(self, share: float) -> int:
        """Count the baseline sessions with at least this share of slow launches."""
        return sum(
            slow >= share * launches
            for slow, launches in zip(self.baseline, self.baseline_launches, strict=True)
        )


def slow_share(
    levels: Levels, baseline_mask: Sequence[bool], at_level: Sequence[bool]
) -> SlowShare:
    """Count slow launches; a baseline session outside ``baseline_mask`` is slow as a whole.

    Sessions outside ``at_level`` were slower than their level: they do not excuse another one.
    """
    launches = (levels.fast_launches + levels.slow_launches).tolist()
    slow = [
        number if kept else every
        for number, every, kept in zip(
            levels.slow_launches[:-1].tolist(), launches[:-1], baseline_mask, strict=True
        )
    ]
    return SlowShare(
        current=int(levels.slow_launches[-1]),
        current_launches=launches[-1],
        baseline=tuple(itertools.compress(slow, at_level)),
        baseline_launches=tuple(itertools.compress(launches[:-1], at_level)),
    )
