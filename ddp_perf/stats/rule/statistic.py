"""The difference that is judged, with its error, computed from the levels of the sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import Comparison, upper_f
from ddp_perf.stats.rule.control import ControlMove, currents_move
from ddp_perf.stats.rule.levels import Levels, Mask, SlowShare, slow_share, without_slow_sessions
from ddp_perf.stats.rule.reference import (
    Groups,
    ReferenceMove,
    StoredLevels,
    centred,
    groups_of,
    stored_levels,
)
from ddp_perf.stats.rule.variance_components import NOT_SAMPLED, Sampling, VarianceComponents

_RESTLESS_LEVEL = 0.05  # of the F test of this session's launches


class JudgedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the levels, its variance components, the slow launches and the control."""

    comparison: Comparison
    errors: VarianceComponents
    share: SlowShare
    raw: float  # log ratio of the levels, with what the control explains
    overall: float  # log ratio of the means over all launches, slow ones included
    chance_all_slow: float  # that all launches of this session are in the slow mode
    control: ControlMove | None
    move: ReferenceMove | None  # within the reference
    off_level: tuple[int, ...] | None  # the stored sessions on the slower side of the move

    @property
    def share_grown(self) -> bool:
        """True if more launches are slow than is likely, at the cost of the tolerance."""
        enough = self.overall >= math.log1p(self.comparison.tolerance)
        return self.share.current > 0 and enough and self.share.is_largest

    @property
    def mostly_slow(self) -> bool:
        """True if most launches are slow, as never before: the others prove no good news."""
        return self.share.prevails


def judged_difference(
    levels: Levels,
    control: Floats | None,
    *,
    tolerance: float,
    reference: int,
    prior: SessionPrior | None,
    alpha: float,
    session_levels: Sequence[int] = (),
    sampling: Sampling = NOT_SAMPLED,
) -> JudgedDifference:
    """Compare the current session with the first ``reference`` sessions of the newest level.

    ``levels`` and ``control`` (mean logs) have one entry for each session, the current one last.
    ``session_levels`` has the number of each stored session's level; the highest is in force, and
    a negative one is of sessions that were slower than theirs.
    """
    groups = groups_of(session_levels, len(levels.fast) - 1)
    kept, in_reference = _selection(levels, groups, reference)
    stored, slope = stored_levels(levels, control, groups, prior, kept=kept)
    newest = np.flatnonzero(stored.groups == stored.groups.max())
    move = stored.find_move(in_reference, smallest=math.log1p(tolerance), level=alpha)
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
    errors = msgspec.structs.replace(_errors(levels, stored, len(chosen), moved), sampling=sampling)
    comparison = Comparison(
        difference=difference,
        standard_error=errors.standard_error,
        degrees_of_freedom=errors.degrees_of_freedom,
        tolerance=tolerance,
    )
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
    levels: Levels, stored: StoredLevels, reference_sessions: int, control: ControlMove | None
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
        sessions=len(stored.logs),
        reference_sessions=reference_sessions,
        control=control.variance if control else 0.0,
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
