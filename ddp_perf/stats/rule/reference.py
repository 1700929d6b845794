"""The stored sessions of a metric by level: their spread, and a move within the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ddp_perf.core.metric_history import REFERENCE_SESSIONS
from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import upper_session
from ddp_perf.stats.rule.control import ControlSlope, fit_slope
from ddp_perf.stats.rule.levels import Levels, Mask
from ddp_perf.stats.rule.session_variance import SessionSpread, detrend, moderate, session_spread

Groups = npt.NDArray[np.int64]

# n × the variance of the median of n normal values ÷ the variance of one value (David & Nagaraja,
# "Order Statistics", 2003, table 8.1); π/2 is the limit, and more than any other.
_MEDIAN_COST = {1: 1.0, 2: 1.0, 3: 1.3460, 4: 1.1928, 5: 1.4342}


class ReferenceMove(msgspec.Struct, frozen=True, kw_only=True):
    """A lasting change of the level between two of the sessions that set it."""

    after: int  # sessions of the level before it
    change: float  # log ratio of the later sessions to the earlier ones

    @property
    def faster(self) -> slice:
        """The sessions on the faster side."""
        return slice(None, self.after) if self.change > 0 else slice(self.after, None)

    @property
    def slower(self) -> slice:
        """The sessions on the slower side."""
        return slice(self.after, None) if self.change > 0 else slice(None, self.after)


def stored_levels(
    levels: Levels,
    control: Floats | None,
    groups: Groups,
    prior: SessionPrior | None,
    *,
    kept: Mask,
) -> tuple[StoredLevels, ControlSlope | None]:
    """Return the sessions of the mask, and how far they follow the control.

    ``kept`` and ``groups`` have one entry for each stored session; ``levels`` and ``control`` may
    have more. ``groups`` are the numbers of their levels, from 0 on; the highest is in force.
    """
    sessions = len(kept)
    groups, logs = groups[kept], levels.fast[:sessions][kept]
    slope = None
    if control is not None:
        witness = control[:sessions][kept]
        slope = fit_slope(centred(logs, groups), centred(witness, groups))
        logs = logs - slope.mean * witness
    with_current = len(levels.fast) > sessions  # its launches are none of the stored ones'
    apart = with_current and levels.stored_df > 0
    launch_variance = levels.stored_variance if apart else levels.launch_variance
    noise = launch_variance * float(np.mean(1 / levels.fast_launches[:sessions][kept]))
    stored = StoredLevels(
        logs=logs,
        groups=groups,
        scale=slope.scale if slope else 1.0,
        launch_noise=noise,
        prior=prior,
    )
    return stored, slope


def groups_of(session_levels: Sequence[int], sessions: int) -> Groups:
    """Return the numbers of the levels, from 0 on; all sessions are of one level by default."""
    if not session_levels:
        return np.zeros(sessions, dtype=np.int64)
    return np.unique(np.asarray(session_levels), return_inverse=True)[1]


def centred(logs: Floats, groups: Groups) -> Floats:
    """Return the logs around the mean of their group."""
    means = np.bincount(groups, logs) / np.maximum(np.bincount(groups), 1)
    return logs - means[groups]


class StoredLevels(msgspec.Struct, frozen=True, kw_only=True):
    """The logs of the stored sessions, oldest first, without what the control explains."""

    logs: Floats
    groups: Groups  # the number of each session's level; the highest is in force
    scale: float = 1.0  # of the residuals, because the slope on the control is estimated
    launch_noise: float  # variance of a session's log from its launches
    prior: SessionPrior | None

    def spread(self) -> SessionSpread:
        """Return the spread of the sessions around their level, moderated by the prior."""
        spread = session_spread(*self.residuals())
        return moderate(spread, self.prior, launch_noise=self.launch_noise)

    def residuals(self) -> tuple[Floats, int]:
        """Return the sessions around their levels, and the degrees of freedom."""
        residual, freedom = np.empty(len(self.logs)), 0
        for group in np.unique(self.groups):
            of_level = self.groups == group
            residual[of_level], df = around_level(self.logs[of_level])
            freedom += df
        return self.scale * residual, freedom

    def split(self, after: int) -> StoredLevels:
        """Return the sessions with a new level after so many sessions of the newest one."""
        newest = np.flatnonzero(self.groups == self.groups.max())
        groups = self.groups.copy()
        groups[newest[after:]] += 1
        return msgspec.structs.replace(self, groups=groups)

    def find_move(self, reference: int, *, smallest: float, level: float) -> ReferenceMove | None:
        """Return the clearest move within the first sessions of the newest level, or None.

        At each place the mean of all sessions before it is compared with that of all sessions
        after it by a t test, with the spread around these two means. The clearest change counts if
        it is within the first ``reference`` sessions; ``level`` is divided over the places there. A
        change below ``smallest`` (log scale) does not count.
        """
        newest = self.logs[self.groups == self.groups.max()]
        within = min(reference, len(newest)) - 1
        found: list[tuple[float, ReferenceMove]] = []
        for after in range(1, len(newest)) if within > 0 else ():
            change = float(newest[after:].mean() - newest[:after].mean())
            if abs(change) < smallest:
                continue
            spread = self.split(after).spread()
            independent = map(spread.independent_sessions, (after, len(newest) - after))
            error = math.sqrt(spread.variance * sum(1 / sessions for sessions in independent))
            freedom = spread.degrees_of_freedom
            if abs(change) >= error * upper_session(freedom, level / within):
                score = abs(change) / error if error else math.inf
                found.append((score, ReferenceMove(after=after, change=change)))
        move = max(found, key=lambda one: one[0])[1] if found else None
        return move if move is not None and move.after <= within else None


def around_level(logs: Floats) -> tuple[Floats, int]:
    """Return the residuals of the sessions of one level, and their degrees of freedom."""
    return detrend(logs) if len(logs) > REFERENCE_SESSIONS else (logs - logs.mean(), len(logs) - 1)


def level_variance(spread: SessionSpread, sessions: int) -> float:
    """Return the variance of the median of so many sessions.

    The median costs a fifth of the precision of the mean, and one bad session does not move it.
    """
    cost = _MEDIAN_COST.get(sessions, math.pi / 2)
    return cost * spread.variance / spread.independent_sessions(sessions)
