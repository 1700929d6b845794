"""The difference of two sides of a comparison, and the verdict on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.verdict import Outcome, SessionPrior, Verdict
from ddp_perf.render.units import at_most_percent, counted, short_percent
from ddp_perf.stats.interval import satterthwaite
from ddp_perf.stats.rule.comparison import (
    SUSPECT_LEVEL,
    Comparison,
    Figures,
    JudgeOptions,
    SignificanceLevels,
    first_invalid_figure,
    upper_f,
)
from ddp_perf.stats.rule.judge import plain_verdict
from ddp_perf.stats.rule.levels import (
    Levels,
    Mask,
    SessionSpread,
    centred,
    levels_of,
    moderate,
    session_spread,
    slow_share,
)
from ddp_perf.stats.rule.reason import count_slow, interval_text, ratio_change, slow_launches
from ddp_perf.stats.rule.statistic import Judged, chance_of_slow_mode

# The difference of two sides of a comparison, each of one session or several.
#
# With n older sessions and m newer ones::
#
#     D      = mean y_new − mean y_old
#     Var(D) = σ²_session (1/n + 1/m) + σ²_launch (mean(1/k_old)/n + mean(1/k_new)/m)
#
# σ²_session is that of the sessions around the mean of their side, on n + m − 2 degrees of freedom.
# Below four of them the larger one of the measured and the assumed spread counts.


_DIFFER_LEVEL = 0.05  # of the F tests: do sessions, or one side's launches, differ more?


class SidesDifference(Judged, frozen=True, kw_only=True):
    """The difference of two sides, by the spread of sessions and by these sessions' launches."""

    session_sd: float
    is_assumed: bool  # the sd of sessions, for want of them
    new_sessions: int
    old_sessions: int


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
    difference = float(levels.fast[is_new].mean() - levels.fast[~is_new].mean())
    comparison = Comparison(
        difference=difference,
        standard_error=math.sqrt(of_sessions + levels.launch_variance * sum(sides)),
        degrees_of_freedom=spread.degrees_of_freedom,
        tolerance=tolerance,
    )
    share = slow_share(levels, [True] * len(old), [True] * len(old))
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
        raw=difference,
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


# The reason of a verdict on two sides, in one or two sentences.


def reason_of_sides(
    outcome: Outcome, difference: SidesDifference, levels: SignificanceLevels, *, by_share: bool
) -> str:
    """Write the reason: the figures, what follows from them, then slow launches.

    ``by_share``: a suspect side is suspect for its slow launches.
    """
    share, overall = difference.share, difference.overall
    ratio = ratio_change(difference.comparison.ratio)
    sides = f"in {counted(difference.new_sessions, 'session')} against {difference.old_sessions}"
    if by_share:
        change = f"{ratio_change(math.exp(overall))} {sides}, {ratio} without slow launches"
        return f"{change}. {count_slow(share)}"
    sentence = _conclusion(outcome, f"{ratio} {sides}", difference, levels)
    return ". ".join([sentence, *slow_launches(share, overall, difference.chance_all_slow)])


def _conclusion(
    outcome: Outcome, change: str, difference: SidesDifference, levels: SignificanceLevels
) -> str:
    comparison, level = difference.comparison, f"{100 * levels.regression:.2g} %"
    measured = f"{change} ({interval_text(comparison.interval)})"
    limit, twice = short_percent(comparison.tolerance), short_percent(2 * comparison.tolerance)
    if outcome is Outcome.IMPROVEMENT:
        return f"{measured}; the tolerance is {limit}"
    if outcome is Outcome.REGRESSION:
        by_chance = f"Unchanged code is called slower in {level} of comparisons"
        return f"{measured}; the tolerance is {limit}. {by_chance}"
    if outcome is Outcome.SUSPECT:
        by_chance = f"Unchanged code is so slow in at most {100 * SUSPECT_LEVEL:g} % of comparisons"
        return f"{measured}. {by_chance}, and a REGRESSION in {level}"
    assumed = " (assumed)" if difference.is_assumed else ""
    differ = f"sessions differ by {100 * difference.session_sd:.1f} %{assumed}"
    upper = comparison.upper(levels.passing)
    if outcome is Outcome.PASS:
        if difference.by_launches is None:
            return f"{measured}; {twice} slower is ruled out"
        most = at_most_percent(max(0.0, upper - 1))
        rules_out = f"the launches rule out {twice} slower"
        return f"{measured}; {rules_out}. If {differ}, it is at most {most} slower"
    if difference.share.prevails:
        return f"most launches were slow; measured: {change}"
    by, why = "", f"; {differ}"
    if difference.by_launches is not None:
        upper, by, why = difference.by_launches.upper(levels.passing), " by the launches", ""
    bound = f"at most {at_most_percent(upper - 1)} slower{by} (99.5 % confidence)"
    return f"{bound}; measured: {change}. A PASS rules out {twice}{why}"


# Judge whether one side of a comparison is slower than the other one, by plain numbers.
#
# The rule is that of `judge` where sessions are measured on both sides, and no session is stored.
# So nothing is kept for sessions that are suspect in a row, no level moves, and no control is used.


def judge_sides(
    new: Sequence[Figures],
    old: Sequence[Figures],
    *,
    tolerance: float,
    alpha: float,
    prior: SessionPrior,
    same_machine: bool = True,
) -> Verdict:
    """Judge one metric of one case by one figure for each launch; lower is better.

    ``new`` and ``old`` have sessions × launches. ``prior`` is the spread of sessions, from the
    machine's other cases or assumed. Not the ``same_machine``: each side was measured on another
    host of a pool, and launches cannot show how hosts differ.

    - REGRESSION: slower at level ``alpha``, one-sided, and by at least ``tolerance``.
    - SUSPECT: slower at level 0.01; or more slow launches than in any older session, at the cost of
      the tolerance.
    - IMPROVEMENT: the mirror image of a regression.
    - PASS: the one-sided 99.5 % upper bound of the ratio is below ``1 + 2 tolerance``. While the
      spread of sessions is assumed, the bound is that of these sessions, by their launches; unless
      the sessions of a side differ by more than their launches explain.
    - UNDECIDED: none of these, or most launches are slow, as in no older session.
    - INVALID: a side has no session, or there is a value that no measurement gives.

    Raises ValueError if an option is out of its range.
    """
    JudgeOptions(tolerance=tolerance, alpha=alpha, prior=prior).check(len(old))
    problem = _problem("newer", new) or _problem("older", old)
    if problem:
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    difference = difference_of_sides(
        new, old, tolerance=tolerance, prior=prior, same_machine=same_machine
    )
    levels = SignificanceLevels(regression=alpha)
    verdict, by = plain_verdict(difference, levels)
    reason = reason_of_sides(verdict.outcome, difference, levels, by_share=by == "share")
    return msgspec.structs.replace(verdict, reason=reason)


def _problem(side: str, sessions: Sequence[Figures]) -> str | None:
    """Return why a side cannot be judged, in one sentence, or None if it can."""
    if len(sessions) == 0:
        return f"the {side} side has no session with a figure"
    named = [(f"{side} session {i}", session) for i, session in enumerate(sessions, start=1)]
    return first_invalid_figure(named)
