"""The levels of stored sessions, and the variance between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import special

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import ControlSlope, fit_slope, upper_session

# The levels of sessions, from their launches, with launches in a slow mode separated.
#
# A launch may fall into a slow mode (an unlucky placement, another algorithm chosen). Its steps are
# then tens of per cent slower, which is no evidence about the code. Averaged in, three such
# launches in ten hide any regression; with the median of five launches, one session in six is a
# false alarm. So the level of a session is the mean of its launches in the fast mode, and the
# number of launches in the slow mode is judged separately.


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

    def has_grown(self, overall: float, tolerance: float) -> bool:
        """Return whether more launches are slow than in any older session, at that cost at least.

        ``overall`` is the log ratio of the means over all launches, slow ones included.
        """
        enough = overall >= math.log1p(tolerance)
        return self.current > 0 and enough and self.is_largest

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

    The sessions after those of the mask are the judged ones. Sessions outside ``at_level`` were
    slower than their level: they do not excuse another one.
    """
    stored = len(baseline_mask)
    launches = (levels.fast_launches + levels.slow_launches).tolist()
    slow = levels.slow_launches.tolist()
    of_baseline = [
        number if kept else every
        for number, every, kept in zip(slow[:stored], launches[:stored], baseline_mask, strict=True)
    ]
    return SlowShare(
        current=sum(slow[stored:]),
        current_launches=sum(launches[stored:]),
        baseline=tuple(itertools.compress(of_baseline, at_level)),
        baseline_launches=tuple(itertools.compress(launches[:stored], at_level)),
    )


# The between-session variance, moderated by the other cases of the machine.
#
# With three sessions the variance of one case has two degrees of freedom, and a t test at 0.1 %
# finds nothing under 20 %. The cases of a machine share its conditions, so their variances are
# squeezed towards a common value: Smyth, "Linear models and empirical Bayes methods for assessing
# differential expression in microarray experiments", SAGMB 3(1), 2004; the ``squeezeVar`` of limma.


# Assumed while there are only one or two sessions, and neither the machine's other cases nor the
# caller have anything better: sessions that differ by 3 %, as on a shared machine, with four
# degrees of freedom.
WIDE_DEFAULT = SessionPrior(sd=0.03, degrees_of_freedom=4.0, assumed=True)
_TREND_LEVEL = 1e-5  # a drift of the sessions needs strong evidence; see `detrend`
_CONFLICT_LEVEL = 0.01
_LEAST_SHARE = 0.25  # of the variance of levels


def squeeze_session_variance(variances: Sequence[float], dfs: Sequence[float]) -> SessionPrior:
    """Estimate the prior that the cases of one machine share (Smyth 2004, section 6.2).

    ``variances`` are one for each case, on the log scale, and ``dfs`` their degrees of freedom, as
    ``s² ~ s0² F(d, d0)``. With ``e = ln s² − ψ(d/2) + ln(d/2)`` over n cases::

        ψ'(d0/2) = mean[(e − ē)² n/(n−1) − ψ'(d/2)]
        s0²      = exp(ē + ψ(d0/2) − ln(d0/2))

    If the left-hand side is not positive, the cases differ by no more than chance: d0 is infinite,
    and s0² is their mean, weighted by degrees of freedom. A single case is no evidence of how cases
    differ: d0 is 0. Zeros are raised to 1e-5 of the median, as in limma.

    Raises ValueError if no usable variance is given.
    """
    s2, d = np.asarray(variances, dtype=float), np.asarray(dfs, dtype=float)
    if s2.shape != d.shape or s2.ndim != 1:
        raise ValueError("one number of degrees of freedom is needed for each variance")
    usable = np.isfinite(s2) & (s2 >= 0) & np.isfinite(d) & (d > 0)
    s2, d = s2[usable], d[usable]
    if s2.size == 0:
        raise ValueError("no finite variance with degrees of freedom was given")
    if s2.size == 1 or not s2.any():
        sd = math.sqrt(float(s2.mean()))
        return SessionPrior(sd=sd, degrees_of_freedom=0.0)
    middle = float(np.median(s2)) or float(s2[s2 > 0].min())
    s2 = np.maximum(s2, 1e-5 * middle)
    e = np.log(s2) - special.digamma(d / 2) + np.log(d / 2)
    spread = float(e.var(ddof=1)) - float(special.polygamma(1, d / 2).mean())
    if spread <= 0:
        return SessionPrior(
            sd=math.sqrt(float(np.average(s2, weights=d))), degrees_of_freedom=np.inf
        )
    half = trigamma_inverse(spread)
    s0_squared = math.exp(float(e.mean() + special.digamma(half)) - math.log(half))
    return SessionPrior(sd=math.sqrt(s0_squared), degrees_of_freedom=2 * half)


def sessions_alone(prior: SessionPrior, launch_noise: float) -> SessionPrior:
    """Remove the launches' part of the variance from a prior for the levels of sessions.

    At least a quarter of the variance is left to the sessions, however much the launches explain.
    """
    total = prior.sd**2
    sessions = max(total - launch_noise, _LEAST_SHARE * total)
    return msgspec.structs.replace(prior, sd=math.sqrt(sessions))


def trigamma_inverse(x: float) -> float:
    """Return y with ψ'(y) = x > 0, by Newton's method on 1/ψ', which is nearly linear.

    Source: Smyth 2004, appendix.
    """
    if x > 1e7:
        return 1 / math.sqrt(x)
    if x < 1e-6:
        return 1 / x
    y = 0.5 + 1 / x
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / x) / float(special.polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


class SessionSpread(msgspec.Struct, frozen=True, kw_only=True):
    """The variance of one session's level, its precision, and the correlation of sessions."""

    variance: float
    degrees_of_freedom: float
    correlation: float = 0.0  # of successive sessions, shrunken; at least 0
    assumed_sd: float | None = None  # of an assumed prior, for want of data

    def independent_sessions(self, sessions: int) -> float:
        """Return the effective number of independent sessions in a mean: n (1 − r) ÷ (1 + r)."""
        return max(1.0, sessions * (1 - self.correlation) / (1 + self.correlation))


def detrend(levels: Floats) -> tuple[Floats, int]:
    """Return the residuals of the sessions around their line or mean, and the residual df.

    A line is fitted only on strong evidence: an F test of the slope at 1e-5, its F reduced by the
    correlation of the sessions. A few correlated sessions look like a trend, and subtracting it
    hides most of their spread: at 0.1 % that tripled the false alarms.
    """
    n = len(levels)
    centred = levels - levels.mean()
    total = float(centred @ centred)
    if n < 4 or total == 0.0:
        return centred, n - 1
    time = np.arange(n) - (n - 1) / 2
    residual = centred - time * float(time @ centred) / float(time @ time)
    left, correlation = float(residual @ residual), session_correlation(residual)
    explained = max(0.0, total - left) * (1 - correlation) / (1 + correlation)
    # The upper tail of F by its beta form, which a line without noise does not break.
    p = float(special.betainc((n - 2) / 2, 0.5, left / (left + explained)))
    return (residual, n - 2) if p < _TREND_LEVEL else (centred, n - 1)


def session_correlation(residual: Floats) -> float:
    """Estimate the lag-one correlation of successive sessions, shrunken towards 0.

    Its bias of −1/n is corrected. n sessions count against eight sessions without correlation,
    because eight sessions estimate it only to ± 0.35.
    """
    n = len(residual)
    total = float(residual @ residual)
    if n < 4 or total == 0.0:
        return 0.0
    lag_one = float(residual[1:] @ residual[:-1]) / total + 1 / n
    return min(0.8, max(0.0, lag_one * n / (n + 8)))


def session_spread(residual: Floats, degrees_of_freedom: int) -> SessionSpread:
    """Estimate the spread from the residuals of the sessions around their mean or line.

    Correlated sessions lie closer to their own mean than to the next session; the factor ``(1 −
    1/n) ÷ (1 − 1/n_eff)`` corrects that.
    """
    n = len(residual)
    if degrees_of_freedom < 1:
        return SessionSpread(variance=0.0, degrees_of_freedom=0.0)
    raw = SessionSpread(
        variance=float(residual @ residual) / degrees_of_freedom,
        degrees_of_freedom=float(degrees_of_freedom),
        correlation=session_correlation(residual),
    )
    independent = max(1.5, raw.independent_sessions(n))
    corrected = raw.variance * (1 - 1 / n) / (1 - 1 / independent)
    return msgspec.structs.replace(raw, variance=corrected)


def moderate(
    spread: SessionSpread, prior: SessionPrior | None, *, launch_noise: float
) -> SessionSpread:
    """Combine a case's spread with the prior: ``(d0 s0² + d s²) ÷ (d0 + d)`` on d0 + d df.

    Source: Smyth 2004, equation 5. A prior describes the sessions alone. So ``launch_noise``, the
    variance of a session's level from its launches, is added to it; it also bounds the case's own
    variance from below. A prior that the case's own sessions contradict (F test at 1 %) is not
    used: it would raise an alarm for every session of a noisy case (Phipson et al. 2016, on
    hypervariable genes).
    """
    own = max(spread.variance, launch_noise)
    d = spread.degrees_of_freedom
    if prior is None or prior.degrees_of_freedom == 0:
        prior = WIDE_DEFAULT
    if prior.assumed and d >= 2:
        return msgspec.structs.replace(spread, variance=own)
    s0, d0 = prior.sd**2 + launch_noise, prior.degrees_of_freedom
    if d > 0 and _contradicted(own, d, s0, d0):
        return msgspec.structs.replace(spread, variance=own)
    variance = s0 if math.isinf(d0) else (d0 * s0 + d * own) / (d0 + d)
    return msgspec.structs.replace(
        spread,
        variance=variance,
        degrees_of_freedom=d0 + d,
        assumed_sd=prior.sd if prior.assumed else None,
    )


def _contradicted(own: float, d: float, s0: float, d0: float) -> bool:
    if s0 == 0.0:
        return own > 0.0
    if math.isinf(d0):
        return float(special.chdtrc(d, d * own / s0)) < _CONFLICT_LEVEL
    return float(special.fdtrc(d, d0, own / s0)) < _CONFLICT_LEVEL


# The stored sessions of a metric by level: their spread, and a move within the reference.


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
