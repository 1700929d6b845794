"""The difference that is judged, its variance components, and what would decide it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.stats.interval import satterthwaite
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import (
    NOT_SAMPLED,
    Comparison,
    ControlMove,
    JudgeOptions,
    Sampling,
    SignificanceLevels,
    currents_move,
    upper_f,
)
from ddp_perf.stats.rule.levels import (
    Groups,
    Levels,
    Mask,
    ReferenceMove,
    SessionSpread,
    SlowShare,
    StoredLevels,
    centred,
    groups_of,
    level_variance,
    slow_share,
    stored_levels,
    without_slow_sessions,
)
from ddp_perf.stats.sequential import MOST, fewest, samples_to_decide

# Variance components of a comparison.


class VarianceComponents(msgspec.Struct, frozen=True, kw_only=True):
    """The variance components of a difference (log scale), and the counts that divide them."""

    spread: SessionSpread  # of a baseline session's level: from the session and its launches
    baseline_launch_noise: float  # the part of it that comes from the launches
    launch_variance: float
    launch_df: int
    restless: bool = False  # the launch variance is of this session alone: the others differ less
    launches: int  # of the current session, in the fast mode
    reference_sessions: int
    control: float  # because the slope on the control is uncertain
    sampling: Sampling = NOT_SAMPLED  # of the current session

    @property
    def session_variance(self) -> float:
        """The between-session variance: what the launches do not explain."""
        return max(0.0, self.spread.variance - self.baseline_launch_noise)

    def variance_of(self, launches: float) -> float:
        """Return the variance of the difference with so many launches of the current session."""
        return (
            self.session_variance
            + self.launch_variance / launches
            + level_variance(self.spread, self.reference_sessions)
            + self.control
            + self.sampling.variance
        )

    @property
    def standard_error(self) -> float:
        """The standard error of the difference, on the log scale."""
        return math.sqrt(self.variance_of(self.launches))

    def information(self, looks: Sequence[int]) -> list[float]:
        """Return the information at each look, as a share of the information at the last one.

        ``looks`` are numbers of launches. The alpha spending over the looks needs the shares.
        The part of the variance that no launch reduces is halved: it is estimated from few
        sessions, and looks that are taken for more correlated than they are alarm too often.
        """
        shared = self.variance_of(math.inf)
        variances = [shared / 2 + self.launch_variance / launches for launches in looks]
        return [variances[-1] / variance if variance else 1.0 for variance in variances]

    @property
    def degrees_of_freedom(self) -> float:
        """The degrees of freedom of the difference: of sessions, or of both.

        The launches count if this session has fewer of them than the baseline sessions, or if they
        differ more.
        """
        excess = self.launch_variance / self.launches - self.baseline_launch_noise
        sessions = self.spread.degrees_of_freedom
        launch_df = self.launches - 1 if self.restless else self.launch_df
        parts = []
        if excess > 0 and launch_df:
            parts.append((excess, float(launch_df)))
        if self.sampling.variance:
            parts.append((self.sampling.variance, self.sampling.degrees_of_freedom))
        if not parts:
            return sessions
        total = self.variance_of(self.launches)
        rest = total - sum(variance for variance, _ in parts)
        return satterthwaite((rest, sessions), *parts)

    def compare(self, difference: float, tolerance: float) -> Comparison:
        """Return a difference (log ratio) with its error."""
        return Comparison(
            difference=difference,
            standard_error=self.standard_error,
            degrees_of_freedom=self.degrees_of_freedom,
            tolerance=tolerance,
        )


# The difference that is judged, with its error, computed from the levels of the sessions.


_RESTLESS_LEVEL = 0.05  # of the F test of this session's launches


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The grounds of an outcome: the comparison, the slow launches and the control."""

    comparison: Comparison  # of the code: it counts how sessions differ
    by_launches: Comparison | None = None  # of these sessions alone, for a PASS
    share: SlowShare
    raw: float  # log ratio of the levels, with what the control explains
    overall: float  # log ratio of the means over all launches, slow ones included
    chance_all_slow: float  # that all judged launches are in the slow mode
    control: ControlMove | None = None
    move: ReferenceMove | None = None  # within the reference


class JudgedDifference(Judged, frozen=True, kw_only=True):
    """A session against stored ones, with the variance components."""

    errors: VarianceComponents
    off_level: tuple[int, ...] | None  # the stored sessions on the slower side of the move


def judged_difference(
    levels: Levels, control: Floats | None, options: JudgeOptions, *, alpha: float
) -> JudgedDifference:
    """Compare the current session with the reference of the newest level, a move at ``alpha``.

    ``levels`` and ``control`` (mean logs) have one entry for each session, the current one last.
    A negative one of ``session_levels`` is of sessions that were slower than their level.
    """
    sessions, session_levels = len(levels.fast) - 1, options.session_levels
    reference = min(options.reference or sessions, sessions)
    groups = groups_of(session_levels, sessions)
    kept, in_reference = _selection(levels, groups, reference)
    stored, slope = stored_levels(levels, control, groups, options.prior, kept=kept)
    newest = np.flatnonzero(stored.groups == stored.groups.max())
    move = stored.find_move(in_reference, smallest=math.log1p(options.tolerance), level=alpha)
    if move is not None:
        stored = stored.split(move.after)
    chosen = newest[move.faster if move else slice(None)][:in_reference]
    before, current = levels.fast[:-1][kept], float(levels.fast[-1])
    raw = current - float(np.median(before[chosen]))
    difference, moved = raw, None
    if control is not None and slope is not None:
        witness = control[:-1][kept]
        shift = float(control[-1] - witness[chosen].mean())
        moved = currents_move(
            slope,
            centred(witness, stored.groups),
            shift,
            levels=len(np.unique(stored.groups)),
            reference=len(chosen),
        )
        level = float(np.median(before[chosen] - moved.slope * witness[chosen]))
        difference = current - moved.slope * float(control[-1]) - level
    errors = _errors(levels, stored, len(chosen), moved, options.sampling)
    comparison = errors.compare(difference, options.tolerance)
    at_level = [number >= 0 for number in session_levels] or [True] * len(kept)
    share = slow_share(levels, kept.tolist(), at_level)
    return JudgedDifference(
        comparison=comparison,
        errors=errors,
        share=share,
        raw=raw,
        overall=float(levels.overall[-1] - np.median(levels.overall[:-1][kept][chosen])),
        chance_all_slow=chance_of_slow_mode(levels, share, comparison),
        control=moved,
        move=move,
        off_level=None
        if move is None
        else tuple(np.flatnonzero(kept)[newest[move.slower]].tolist()),
    )


def _selection(levels: Levels, groups: Groups, reference: int) -> tuple[Mask, int]:
    """Return the mask of the sessions that are used, and how many of them set the level."""
    kept = without_slow_sessions(levels, len(levels.fast) - 1)
    newest = groups == groups.max()
    if not kept[newest][:reference].any():
        kept[:] = True
    return kept, int(kept[newest][:reference].sum())


def _errors(
    levels: Levels,
    stored: StoredLevels,
    reference_sessions: int,
    control: ControlMove | None,
    sampling: Sampling,
) -> VarianceComponents:
    """Return the variance components; launches that differ more than before count by themselves."""
    restless = _is_restless(levels)
    return VarianceComponents(
        spread=stored.spread(),
        baseline_launch_noise=stored.launch_noise,
        launch_variance=levels.own_variance if restless else levels.launch_variance,
        launch_df=levels.own_df if restless else levels.launch_df,
        restless=restless,
        launches=int(levels.fast_launches[-1]),
        reference_sessions=reference_sessions,
        control=control.variance if control else 0.0,
        sampling=sampling,
    )


def _is_restless(levels: Levels) -> bool:
    """Return whether this session's launches differ significantly more than the stored ones."""
    if not (levels.own_df and levels.stored_df and levels.stored_variance):
        return False
    limit = upper_f(levels.own_df, levels.stored_df, _RESTLESS_LEVEL)
    return levels.own_variance / levels.stored_variance > limit


def chance_of_slow_mode(levels: Levels, share: SlowShare, comparison: Comparison) -> float:
    """Return the probability that every launch of the current session is in the slow mode.

    A session may be one mode higher than the baseline while its launches do not differ. Then
    either the code is slower, or every launch is in the slow mode that the baseline has shown;
    the shares of the baseline's sessions give the probability of the latter. It is 0 if the
    session is not one mode higher.
    """
    distance = abs(comparison.difference - levels.slow_gap)
    near = comparison.margin + math.log1p(comparison.tolerance)
    if not levels.slow_gap or share.current or distance > near:
        return 0.0
    return share.chance_of_all


# Find what would decide a comparison: further launches of this session, or sessions.


def launches_to_decide(
    errors: VarianceComponents, now: Comparison, levels: SignificanceLevels
) -> tuple[int | None, int | None]:
    """Return how many more launches of this session decide, and how many do nine times in ten.

    For the first number the ratio is assumed to stay as it is. None: no number of launches
    decides, because sessions are missing.
    """
    if errors.spread.assumed_sd is not None:
        return None, None

    def decides(launches: int, move: float) -> bool:
        later = msgspec.structs.replace(errors, launches=launches)
        slower, faster = (later.compare(now.difference + by, now.tolerance) for by in (move, -move))
        return slower.passes(levels.passing) or faster.slower(levels.regression)

    return samples_to_decide(decides, samples=errors.launches, variance=errors.launch_variance)


def sessions_to_decide(
    errors: VarianceComponents, now: Comparison, levels: SignificanceLevels
) -> int | None:
    """Return how many more baseline sessions would decide a comparison that launches cannot.

    The ratio and the spread are assumed to stay as they are. They do not: the number shows whether
    sessions may decide it, and no more (`benchmarks/predictions.py`). None: not even 100 more
    would, or the spread of sessions is assumed, which shows nothing.
    """
    if errors.spread.assumed_sd is not None:
        return None

    def decides(more: int) -> bool:
        reference = max(
            errors.reference_sessions, min(errors.reference_sessions + more, REFERENCE_SESSIONS)
        )
        later = msgspec.structs.replace(errors, reference_sessions=reference)
        then = msgspec.structs.replace(
            now,
            standard_error=later.standard_error,
            degrees_of_freedom=now.degrees_of_freedom + more,
        )
        return then.passes(levels.passing) or then.slower(levels.regression)

    return fewest(range(1, MOST + 1), decides)
