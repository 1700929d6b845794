"""The reason of a verdict, in one to three sentences for the engineer whose build failed.

This module is the only one of `stats` that makes sentences of its values.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from ddp_perf.core.baseline import LEAST_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import at_most_percent, counted, short_percent
from ddp_perf.stats.rule.comparison import ControlMove, SignificanceLevels, sessions_to_confirm
from ddp_perf.stats.rule.levels import ReferenceMove
from ddp_perf.stats.rule.statistic import JudgedDifference, VarianceComponents

_SLOPE_WORTH_A_WORD = 0.1
_MOVE_WORTH_A_WORD = 0.01  # of the control
_SUBTRACTION_WORTH_A_WORD = 0.001
_WELL_KNOWN = 4.0  # degrees of freedom from which a spread is stated without a remark


# What decided: the level of the session, its share of slow launches, or a move of the reference.
Grounds = Literal["level", "share", "move"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a comparison, for its reason."""

    outcome: Outcome
    by: Grounds
    upper: float | None  # bound of the ratio
    more_launches: int | None  # would decide it if the ratio stayed the same
    likely_launches: int | None  # decide it, nine times in ten
    more_sessions: int | None  # would decide it if ratio and spread stayed the same
    chance: float | None  # of a suspect session, if nothing changed
    alpha: float  # false-alarm rate of the verdict


def reason_of(decision: Decision, judged: JudgedDifference, levels: SignificanceLevels) -> str:
    """Write the reason: the figures, what follows from them, then slow launches and control.

    An undecided one begins with what is ruled out.
    """
    if decision.outcome is Outcome.UNDECIDED:
        sentences = [_bound(decision.upper), f"{_ratio(judged)}; {_needs(decision, judged)}"]
    else:
        figures = _overall(judged) if decision.by == "share" else _figures(judged)
        sentences = [f"{figures}; {_meaning(decision, judged, levels)}"]
    if judged.move is not None:
        sentences.append(_reference_move(judged.move))
    if judged.share.any_slow:
        sentences.append(_slow_launches(decision, judged))
    if judged.control is not None and _is_worth_a_word(judged.control):
        sentences.append(_control(judged.control))
    return ". ".join(sentences)


def _ratio(judged: JudgedDifference) -> str:
    sessions = counted(judged.errors.reference_sessions, "session")
    return f"{ratio_change(judged.comparison.ratio)} against {sessions}"


def _figures(judged: JudgedDifference) -> str:
    low, high = judged.comparison.interval
    return f"{_ratio(judged)} (99 % interval {ratio_change(low)} to {ratio_change(high)})"


def _overall(judged: JudgedDifference) -> str:
    overall, fast = math.exp(judged.overall), judged.comparison.ratio
    sessions = counted(judged.errors.reference_sessions, "session")
    changes = ratio_change(overall), ratio_change(fast)
    return f"{changes[0]} against {sessions}, {changes[1]} without the slow launches"


def _meaning(decision: Decision, judged: JudgedDifference, levels: SignificanceLevels) -> str:
    comparison, level, outcome = judged.comparison, levels.regression, decision.outcome
    tolerance = 100 * comparison.tolerance
    if outcome is Outcome.PASS:
        detectable = 100 * comparison.minimum_detectable(level)
        found = f"{detectable:.{0 if detectable >= 10 else 1}f} % or more is found 9 times in 10"
        return f"{2 * tolerance:.3g} % more, twice the tolerance, is ruled out; {found}"
    if outcome is Outcome.IMPROVEMENT:
        return (
            f"significantly faster, and by at least the tolerance of {tolerance:.3g} %; accept it,"
            " or its loss stays unseen"
        )
    if decision.by == "move":
        return "the sessions after the first ones are slower, and this one is no exception"
    if outcome is Outcome.REGRESSION:
        return (
            f"significantly slower (unchanged code is so in {100 * level:.2g} % of sessions), and"
            f" by at least the tolerance of {tolerance:.3g} %"
        )
    if decision.chance is not None:
        many = sessions_to_confirm(decision.chance, decision.alpha)
        what = "more slow launches than in any session, " if decision.by == "share" else ""
        return f"{what}suspect, not proven: {many} suspect sessions in a row are a REGRESSION"
    return (
        "the machine itself changed by more than its baseline sessions account for; if it has"
        ' changed for good, --save-baseline=accept --ddp-reason "…" begins a new level'
    )


def _bound(upper: float | None) -> str:
    if upper is None:
        return "undecided: most launches were slow, as in no session before"
    bound = at_most_percent(upper - 1)
    return f"undecided: at most {bound} above the baseline (99.5 % confidence)"


def _needs(decision: Decision, judged: JudgedDifference) -> str:
    if decision.more_launches is None:
        return missing_sessions_text(judged.errors, decision.more_sessions)
    if decision.likely_launches is None:
        return "more launches of this session may decide it"
    launches = counted(decision.likely_launches, "more launch")
    verb = "decides" if decision.likely_launches == 1 else "decide"
    return f"{launches} of this session {verb} it, 9 times in 10, if the code did not change"


def missing_sessions_text(errors: VarianceComponents, more: int | None) -> str:
    """Explain that launches cannot decide, and whether further sessions may: ``more`` or None."""
    assumed = errors.spread.assumed_sd
    if assumed is not None:
        return (
            f"how much sessions differ is assumed ({short_percent(assumed)}); from"
            f" {LEAST_SESSIONS} stored sessions on it is measured, and may be more or less"
        )
    differ = f"sessions differ by {100 * math.sqrt(errors.session_variance):.1f} %"
    if errors.spread.degrees_of_freedom < _WELL_KNOWN:
        differ += f", which {counted(errors.sessions, 'session')} show only roughly"
    if more is not None:
        return f"{differ}; further stored sessions may decide it"
    return (
        f"{differ}; further sessions are not likely to decide it: use a quieter machine, or raise"
        " the tolerance"
    )


def _slow_launches(decision: Decision, judged: JudgedDifference) -> str:
    """Count the launches in the slow mode; the change over all of them, if it is not stated yet."""
    share = judged.share
    before = f"{sum(share.baseline)} of {sum(share.baseline_launches)}"
    mode = "in a slow mode, far above the others"
    if judged.chance_all_slow:
        return (
            f"{before} launches of the baseline were {mode}. Possibly all {share.current_launches}"
            " of this session are, and the code is as fast as before (probability"
            f" {judged.chance_all_slow:.2g})"
        )
    counts = f"{share.current} of {share.current_launches} launches were {mode}"
    if share.current == 0:
        return f"{counts}; {before} in the baseline"
    counts += f"; {before} in the baseline (chance {share.chance:.2g} if nothing changed)"
    if decision.by == "share":
        return counts
    overall = ratio_change(math.exp(judged.overall))
    return f"{counts}. Over all launches the change is {overall}; the one above is of the fast ones"


def _reference_move(move: ReferenceMove) -> str:
    return (
        f"The reference itself moved by {ratio_change(math.exp(move.change))} after its session"
        f" {move.after}: which part is right? The faster one sets the level; if it is the slower"
        ' one, --save-baseline=accept --ddp-reason "…" begins a new level with this session'
    )


def _is_worth_a_word(control: ControlMove) -> bool:
    """Return whether the control moved at all, or changes the ratio that is shown."""
    subtracted = abs(control.explained) >= _SUBTRACTION_WORTH_A_WORD
    return control.beyond or subtracted or abs(control.shift) >= _MOVE_WORTH_A_WORD


def _control(control: ControlMove) -> str:
    move = ratio_change(math.exp(control.shift))
    moved = f"The control, a fixed matrix product that is timed in each launch, moved by {move}"
    if control.beyond:
        return f"{moved}, further than in any session before; how the case follows it is unknown"
    if abs(control.explained) < _SLOPE_WORTH_A_WORD * abs(control.shift):
        return f"{moved}; nothing was subtracted, because the case does not follow it"
    explained = ratio_change(math.exp(control.explained))
    return f"{moved}; {explained} was subtracted, because the case follows it"


def ratio_change(ratio: float) -> str:
    """Format a ratio: 1.05 as +5.0 %, and three or more as a factor."""
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 3 else f"× {ratio:.3g}"
