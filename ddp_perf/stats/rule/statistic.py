"""The difference that is judged, with its error, computed from the levels of the sessions."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.robust import Floats
from ddp_perf.stats.rule.comparison import Comparison
from ddp_perf.stats.rule.control import ControlMove, ControlSlope, currents_move, fit_slope
from ddp_perf.stats.rule.modes import (
    Levels,
    Mask,
    SlowShare,
    slow_share,
    without_slow_sessions,
)
from ddp_perf.stats.rule.session_variance import SessionSpread, detrend, moderate, session_spread
from ddp_perf.stats.rule.variance_components import VarianceComponents


class JudgedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the levels, its variance components, the slow launches and the control."""

    comparison: Comparison
    errors: VarianceComponents
    share: SlowShare
    overall: float  # log ratio of the means over all launches, slow ones included
    chance_all_slow: float  # that all launches of this session are in the slow mode
    control: ControlMove | None

    def share_grown(self, level: float) -> bool:
        """Return whether significantly more launches are slow, at the cost of the tolerance."""
        enough = self.overall >= math.log1p(self.comparison.tolerance)
        return self.share.any_slow and enough and self.share.p_value <= level


def judged_difference(
    levels: Levels,
    control: Floats | None,
    *,
    tolerance: float,
    reference: int,
    prior: SessionPrior | None,
) -> JudgedDifference:
    """Compare the current session with the first ``reference`` sessions of the baseline.

    ``levels`` and ``control`` (mean logs) have one entry for each session, the current one last.
    """
    kept = without_slow_sessions(levels, len(levels.fast) - 1)
    if not kept[:reference].any():
        kept[:] = True
    in_reference = int(kept[:reference].sum())
    sessions, current = levels.fast[:-1][kept], float(levels.fast[-1])
    residual = sessions - sessions.mean()
    difference = current - float(sessions[:in_reference].mean())
    move = None
    if control is not None:
        slope, move = _control_move(residual, control, kept, in_reference)
        residual, difference = slope.residual, difference - move.explained
    degrees_of_freedom = len(sessions) - 1
    if reference < len(kept):
        residual, degrees_of_freedom = detrend(residual)
    errors = _errors(
        levels,
        session_spread(residual, degrees_of_freedom),
        kept=kept,
        reference_sessions=in_reference,
        prior=prior,
        control=move.variance if move else 0.0,
    )
    comparison = Comparison(
        difference=difference,
        standard_error=errors.standard_error,
        degrees_of_freedom=errors.degrees_of_freedom,
        tolerance=tolerance,
    )
    share = slow_share(levels, kept.tolist())
    return JudgedDifference(
        comparison=comparison,
        errors=errors,
        share=share,
        overall=float(levels.overall[-1] - levels.overall[:reference].mean()),
        chance_all_slow=_chance_all_slow(levels, share, comparison),
        control=move,
    )


def _control_move(
    residual: Floats, control: Floats, kept: Mask, in_reference: int
) -> tuple[ControlSlope, ControlMove]:
    """Fit the slope on the kept baseline sessions, and apply it to this session's shift."""
    moves = control[:-1][kept] - control[:-1][kept].mean()
    slope = fit_slope(residual, moves)
    shift = float(control[-1] - control[:-1][kept][:in_reference].mean())
    return slope, currents_move(slope, moves, shift)


def _errors(
    levels: Levels,
    spread: SessionSpread,
    *,
    kept: Mask,
    reference_sessions: int,
    prior: SessionPrior | None,
    control: float,
) -> VarianceComponents:
    noise = levels.launch_variance * float(np.mean(1 / levels.fast_launches[:-1][kept]))
    return VarianceComponents(
        spread=moderate(spread, prior, launch_noise=noise),
        baseline_launch_noise=noise,
        launch_variance=levels.launch_variance,
        launch_df=levels.launch_df,
        launches=int(levels.fast_launches[-1]),
        sessions=int(kept.sum()),
        reference_sessions=reference_sessions,
        control=control,
    )


def _chance_all_slow(levels: Levels, share: SlowShare, comparison: Comparison) -> float:
    """Return the probability that every launch of the current session is in the slow mode.

    A session may be one mode higher than the baseline while its launches do not differ. Then
    either the code is slower, or every launch is in the slow mode that the baseline has shown;
    the baseline's share of slow launches gives the probability of the latter. It is 0 if the
    session is not one mode higher.
    """
    distance = abs(comparison.difference - levels.slow_gap)
    near = comparison.margin + math.log1p(comparison.tolerance)
    if not levels.slow_gap or share.current or distance > near:
        return 0.0
    return share.chance_of_all
