"""Judge whether one side of a comparison is slower than the other one, by plain numbers.

The rule is that of `judge` where sessions are measured on both sides, and no session is stored. So
nothing is kept for sessions that are suspect in a row, no level moves, and no control is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddp_perf.core.verdict import Outcome, SessionPrior, Verdict
from ddp_perf.stats.rule.comparison import PASS_LEVEL, SignificanceLevels
from ddp_perf.stats.rule.inputs import Figures, check_arguments, first_invalid_figure
from ddp_perf.stats.rule.sides_reason import reason_of_sides
from ddp_perf.stats.rule.suspicion import SUSPECT_LEVEL
from ddp_perf.stats.rule.two_sides import SidesDifference, difference_of_sides


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
    check_arguments(tolerance, alpha, None, prior, (), (), len(old))
    problem = _problem("newer", new) or _problem("older", old)
    if problem:
        return Verdict(outcome=Outcome.INVALID, reason=problem)
    difference = difference_of_sides(
        new, old, tolerance=tolerance, prior=prior, same_machine=same_machine
    )
    levels = SignificanceLevels(regression=alpha)
    outcome = _outcome(difference, levels)
    comparison = difference.comparison
    by_share = outcome is Outcome.SUSPECT and not comparison.slower(max(SUSPECT_LEVEL, alpha))
    return Verdict(
        outcome=outcome,
        reason=reason_of_sides(outcome, difference, levels, by_share=by_share),
        ratio=math.exp(difference.overall) if by_share else comparison.ratio,
        interval=None if by_share else comparison.interval,
        upper=None if by_share or difference.share.prevails else comparison.upper(PASS_LEVEL),
        minimum_detectable=comparison.minimum_detectable(alpha),
    )


def _problem(side: str, sessions: Sequence[Figures]) -> str | None:
    """Return why a side cannot be judged, in one sentence, or None if it can."""
    if len(sessions) == 0:
        return f"the {side} side has no session with a figure"
    named = [(f"{side} session {i}", session) for i, session in enumerate(sessions, start=1)]
    return first_invalid_figure(named)


def _outcome(difference: SidesDifference, levels: SignificanceLevels) -> Outcome:
    comparison, level = difference.comparison, levels.regression
    if comparison.slower(level) and difference.chance_all_slow < level:
        return Outcome.REGRESSION
    if comparison.slower(max(SUSPECT_LEVEL, level)) or difference.share_grown:
        return Outcome.SUSPECT
    if difference.share.prevails:
        return Outcome.UNDECIDED
    if comparison.faster(level):
        return Outcome.IMPROVEMENT
    bound = difference.by_launches or comparison
    return Outcome.PASS if bound.passes(levels.passing) else Outcome.UNDECIDED
