"""The difference of two sides of a comparison, each of one session or several.

With n older sessions and m newer ones::

    D      = mean y_new − mean y_old
    Var(D) = σ²_session (1/n + 1/m) + σ²_launch (mean(1/k_old)/n + mean(1/k_new)/m)

σ²_session is that of the sessions around the mean of their side, on n + m − 2 degrees of freedom.
Below four of them the larger one of the measured and the assumed spread counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.rule.comparison import Comparison, upper_f
from ddp_perf.stats.rule.inputs import Figures
from ddp_perf.stats.rule.levels import Levels, Mask, SlowShare, levels_of
from ddp_perf.stats.rule.reference import centred
from ddp_perf.stats.rule.session_variance import SessionSpread, moderate, session_spread
from ddp_perf.stats.rule.statistic import chance_of_slow_mode
from ddp_perf.stats.rule.variance_components import satterthwaite

_DIFFER_LEVEL = 0.05  # of the F tests: do sessions, or one side's launches, differ more?


class SidesDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The difference of two sides, by the spread of sessions and by these sessions' launches."""

    comparison: Comparison  # of the code: it counts how sessions differ
    by_launches: Comparison | None  # of these sessions alone; None: it cannot decide
    session_sd: float
    is_assumed: bool  # the sd of sessions, for want of them
    new_sessions: int
    old_sessions: int
    share: SlowShare
    overall: float  # log ratio of the means over all launches, slow ones included
    chance_all_slow: float  # that all launches of the newer side are in the slow mode

    @property
    def share_grown(self) -> bool:
        """True if more launches are slow than in any older session, at the tolerance's cost."""
        enough = self.overall >= math.log1p(self.comparison.tolerance)
        return self.share.current > 0 and enough and self.share.is_largest


def difference_of_sides(
    new: Sequence[Figures],
    old: Sequence[Figures],
    *,
    tolerance: float,
    prior: SessionPrior,
    same_machine: bool = True,
) -> SidesDifference:
    """Compare sessions × launches of the newer side with those of the older one."""
    levels = levels_of([*old, *new], tolerance, judged=len(new))
    is_new = np.repeat([False, True], [len(old), len(new)])
    residual, freedom = centred(levels.fast, is_new.astype(np.int64)), len(is_new) - 2
    noise = levels.launch_variance * float(np.mean(1 / levels.fast_launches))
    few = prior.assumed and freedom < prior.degrees_of_freedom
    own = session_spread(residual, freedom)
    spread = _at_least(own, prior, noise) if few else moderate(own, prior, launch_noise=noise)
    session_variance = max(0.0, spread.variance - noise)
    sides = [_per_launch(levels, is_new == side) for side in (False, True)]
    of_sessions = session_variance * (1 / len(old) + 1 / len(new))
    comparison = Comparison(
        difference=float(levels.fast[is_new].mean() - levels.fast[~is_new].mean()),
        standard_error=math.sqrt(of_sessions + levels.launch_variance * sum(sides)),
        degrees_of_freedom=spread.degrees_of_freedom,
        tolerance=tolerance,
    )
    share = _slow_share(levels, len(old))
    squares = float(residual @ residual)
    alike = few and same_machine and not _sessions_differ(levels, squares, freedom, noise)
    return SidesDifference(
        comparison=comparison,
        by_launches=_by_launches(levels, comparison, sides) if alike else None,
        session_sd=math.sqrt(session_variance),
        is_assumed=spread.assumed_sd is not None,
        new_sessions=len(new),
        old_sessions=len(old),
        share=share,
        overall=float(levels.overall[is_new].mean() - levels.overall[~is_new].mean()),
        chance_all_slow=chance_of_slow_mode(levels, share, comparison),
    )


def _at_least(own: SessionSpread, prior: SessionPrior, noise: float) -> SessionSpread:
    """Return the assumed spread, or that of the few sessions if it is larger."""
    assumed = prior.sd**2 + noise
    return msgspec.structs.replace(
        own,
        variance=max(own.variance, assumed),
        degrees_of_freedom=prior.degrees_of_freedom + own.degrees_of_freedom,
        assumed_sd=prior.sd if assumed >= own.variance else None,
    )


def _per_launch(levels: Levels, side: Mask) -> float:
    """Return the variance of a side's mean from its launches, in variances of one launch."""
    return float(np.mean(1 / levels.fast_launches[side])) / int(side.sum())


def _by_launches(
    levels: Levels, comparison: Comparison, sides: Sequence[float]
) -> Comparison | None:
    """Return the comparison of these sessions alone; None if a side has one launch a session.

    It is Student's t, or Welch's where the launches of one side differ more than the other's.
    """
    variances = (levels.stored_variance, levels.own_variance)
    freedoms = (levels.stored_df, levels.own_df)
    if not all(freedoms):
        return None
    less, more = sorted(zip(variances, freedoms, strict=True))
    if more[0] > less[0] * upper_f(more[1], less[1], _DIFFER_LEVEL):
        parts = [
            (variance * side, float(freedom))
            for variance, side, freedom in zip(variances, sides, freedoms, strict=True)
        ]
    else:
        parts = [(levels.launch_variance * sum(sides), float(levels.launch_df))]
    return msgspec.structs.replace(
        comparison,
        standard_error=math.sqrt(sum(variance for variance, _ in parts)),
        degrees_of_freedom=satterthwaite(*parts),
    )


def _sessions_differ(levels: Levels, squares: float, freedom: int, noise: float) -> bool:
    """Return whether the sessions of a side differ by more than their launches explain."""
    if freedom == 0 or levels.launch_df == 0 or squares == 0.0:
        return False
    limit = upper_f(freedom, levels.launch_df, _DIFFER_LEVEL)
    return squares / freedom > limit * noise


def _slow_share(levels: Levels, old: int) -> SlowShare:
    slow, every = levels.slow_launches, levels.fast_launches + levels.slow_launches
    return SlowShare(
        current=int(slow[old:].sum()),
        current_launches=int(every[old:].sum()),
        baseline=tuple(slow[:old].tolist()),
        baseline_launches=tuple(every[:old].tolist()),
    )
