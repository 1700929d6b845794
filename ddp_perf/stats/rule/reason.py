"""The reason of a verdict, in a sentence or two for the engineer whose build failed.

This module is the only one of `stats` that makes sentences of its values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from ddp_perf.core.baseline import LEAST_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import at_most_percent, counted, percent_change, short_percent
from ddp_perf.stats.rule.comparison import ControlMove, SignificanceLevels, sessions_to_confirm
from ddp_perf.stats.rule.levels import ReferenceMove, SlowShare
from ddp_perf.stats.rule.statistic import JudgedDifference, VarianceComponents

_ACCEPT = '--save-baseline=accept --ddp-reason "…" makes this session the baseline'
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
    """Write the reason: the figures and what follows from them, then what else changed."""
    sentences = [_conclusion(decision, judged, levels)]
    if decision.by != "share":
        sentences += slow_launches(judged.share, judged.overall, judged.chance_all_slow)
    if judged.move is not None:
        sentences.append(_reference_move(judged.move))
    if judged.control is not None and _is_worth_a_word(judged.control):
        sentences.append(_control(judged.control))
    return ". ".join(sentences)


def _conclusion(decision: Decision, judged: JudgedDifference, levels: SignificanceLevels) -> str:
    comparison, outcome = judged.comparison, decision.outcome
    sessions = counted(judged.errors.reference_sessions, "session")
    change = f"{ratio_change(comparison.ratio)} against {sessions}"
    if outcome is Outcome.UNDECIDED:
        bound = "most launches were slow"
        if decision.upper is not None:
            bound = f"at most {at_most_percent(decision.upper - 1)} slower (99.5 % confidence)"
        return f"{bound}; measured: {change}. {_needs(decision, judged)}"
    change += f" ({interval_text(comparison.interval)})"
    if outcome is Outcome.PASS:
        return f"{change}; {short_percent(2 * comparison.tolerance)} slower is ruled out"
    if outcome is Outcome.INVALID:
        return f"{change}, and the machine changed; if it did for good, {_ACCEPT}"
    if decision.by == "move":
        return f"{change}, and possibly as slow as later stored sessions"
    change += f"; the tolerance is {short_percent(comparison.tolerance)}"
    if outcome is Outcome.IMPROVEMENT:
        return f"{change}. Accept it, or its loss stays unseen"
    if outcome is Outcome.REGRESSION:
        rate = 100 * levels.regression
        return f"{change}. Unchanged code is called slower in {rate:.2g} % of sessions"
    assert decision.chance is not None  # of a SUSPECT
    many = sessions_to_confirm(decision.chance, decision.alpha)
    if decision.by == "share":
        overall, fast = map(ratio_change, (math.exp(judged.overall), comparison.ratio))
        change = f"{overall} against {sessions}, {fast} without slow launches"
        change += f". {count_slow(judged.share)}"
    return f"{change}. {many} such sessions in a row are a REGRESSION"


def _needs(decision: Decision, judged: JudgedDifference) -> str:
    if decision.more_launches is None:
        return _sessions_needed(judged.errors, decision.more_sessions)
    if decision.likely_launches is None:
        return "More launches may decide it"
    launches = counted(decision.likely_launches, "more launch")
    return f"{launches} decide{'s' if decision.likely_launches == 1 else ''} it 9 times in 10"


def _sessions_needed(errors: VarianceComponents, more: int | None) -> str:
    """Explain that launches cannot decide, and whether further sessions may: ``more`` or None."""
    if (assumed := errors.spread.assumed_sd) is not None:
        until = f"until {LEAST_SESSIONS} are stored"
        return f"How much sessions differ is assumed ({short_percent(assumed)}) {until}"
    about = "about " if errors.spread.degrees_of_freedom < _WELL_KNOWN else ""
    differ = f"Sessions differ by {about}{100 * math.sqrt(errors.session_variance):.1f} %"
    if more is not None:
        return f"{differ}; more stored sessions may decide it"
    return f"{differ}; use a quieter machine, or raise the tolerance"


def slow_launches(share: SlowShare, overall: float, chance_all_slow: float) -> Iterator[str]:
    """Yield a sentence on launches far slower than the others, if the ratio leaves them out.

    ``overall`` is the log ratio with them, and ``chance_all_slow`` that all launches are such.
    """
    if chance_all_slow:
        yield (
            f"Possibly all launches were slow ones, like {_before(share)}, and the code is as fast"
            f" as it was (probability {chance_all_slow:.2g})"
        )
    elif share.current:
        yield f"{count_slow(share)}; with them it is {ratio_change(math.exp(overall))}"


def count_slow(share: SlowShare) -> str:
    """Count the launches that were far slower than the others."""
    counts = f"{share.current} of {share.current_launches} launches"
    return f"{counts} were far slower than the others, {_before(share)}"


def _before(share: SlowShare) -> str:
    return f"{sum(share.baseline)} of {sum(share.baseline_launches)} before"


def _reference_move(move: ReferenceMove) -> str:
    return (
        f"The stored sessions moved by {ratio_change(math.exp(move.change))} after session"
        f" {move.after}, and the faster ones count; if the slower ones are right, {_ACCEPT}"
    )


def _is_worth_a_word(control: ControlMove) -> bool:
    """Return whether the control moved as never before, or changes the ratio that is shown."""
    return control.beyond or abs(control.explained) >= _SUBTRACTION_WORTH_A_WORD


def _control(control: ControlMove) -> str:
    move, explained = (ratio_change(math.exp(one)) for one in (control.shift, control.explained))
    further = ", further than in any session before" if control.beyond else ""
    return (
        f"The machine's time for a fixed matrix product moved by {move}{further}; {explained} is"
        " subtracted"
    )


def ratio_change(ratio: float) -> str:
    """Format a ratio: 1.05 as +5.0 %, and three or more as a factor."""
    return percent_change(ratio) if ratio < 3 else f"× {ratio:.3g}"


def interval_text(interval: tuple[float, float]) -> str:
    """Format a confidence interval of a ratio: its ends as changes, with one unit."""
    low, high = map(ratio_change, interval)
    return f"99 % interval {low.removesuffix(' %') if high.endswith('%') else low} to {high}"
