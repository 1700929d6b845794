"""The reason of a verdict on two sides, in one or two sentences."""

from __future__ import annotations

import math

from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import at_most_percent, counted, short_percent
from ddp_perf.stats.rule.comparison import SignificanceLevels
from ddp_perf.stats.rule.reason import ratio_change
from ddp_perf.stats.rule.two_sides import SidesDifference


def reason_of_sides(
    outcome: Outcome, difference: SidesDifference, levels: SignificanceLevels, *, by_share: bool
) -> str:
    """Write the reason: the figures, what follows from them, then slow launches.

    ``by_share``: a suspect side is suspect for its slow launches.
    """
    figures = f"{_figures(difference, by_share=by_share)}; "
    sentences = [figures + _meaning(outcome, difference, levels, by_share=by_share)]
    if difference.share.any_slow:
        sentences.append(_slow_launches(difference))
    return ". ".join(sentences)


def _figures(difference: SidesDifference, *, by_share: bool) -> str:
    comparison = difference.comparison
    sides = f"in {counted(difference.new_sessions, 'session')} against {difference.old_sessions}"
    if by_share:
        overall, fast = map(ratio_change, (math.exp(difference.overall), comparison.ratio))
        return f"{overall} {sides}, {fast} without the slow launches"
    low, high = map(ratio_change, comparison.interval)
    return f"{ratio_change(comparison.ratio)} {sides} (99 % interval {low} to {high})"


def _meaning(
    outcome: Outcome, difference: SidesDifference, levels: SignificanceLevels, *, by_share: bool
) -> str:
    comparison = difference.comparison
    tolerance, level = short_percent(comparison.tolerance), f"{100 * levels.regression:.2g} %"
    if outcome is Outcome.REGRESSION:
        by_chance = f"unchanged code is so in {level} of comparisons"
        return f"significantly slower ({by_chance}), and by at least the tolerance of {tolerance}"
    if outcome is Outcome.IMPROVEMENT:
        return f"significantly faster, and by at least the tolerance of {tolerance}"
    if by_share:
        return "suspect: more slow launches than in any older session"
    if outcome is Outcome.SUSPECT:
        return f"slower at the 1 % level, not at the {level} that proves it"
    if outcome is Outcome.PASS:
        return _ruled_out(difference, levels)
    return _undecided(difference, levels)


def _ruled_out(difference: SidesDifference, levels: SignificanceLevels) -> str:
    twice = f"{short_percent(2 * difference.comparison.tolerance)}, twice the tolerance"
    if difference.by_launches is None:
        return f"{twice}, is ruled out"
    return (
        f"the launches of these sessions rule out {twice}; if sessions differ by"
        f" {_session_sd(difference)}, the code is"
        f" {_at_most(difference.comparison.upper(levels.passing))}"
    )


def _undecided(difference: SidesDifference, levels: SignificanceLevels) -> str:
    twice = short_percent(2 * difference.comparison.tolerance)
    if difference.share.prevails:
        return "undecided: most launches were slow, as in no older session"
    if difference.by_launches is None:
        bound = _at_most(difference.comparison.upper(levels.passing))
        return (
            f"undecided: {bound}, and {twice} is to be ruled out; sessions differ by"
            f" {_session_sd(difference)}"
        )
    bound = _at_most(difference.by_launches.upper(levels.passing))
    return f"undecided: {bound} by the launches of these sessions, and {twice} is to be ruled out"


def _session_sd(difference: SidesDifference) -> str:
    if difference.is_assumed:
        return f"{short_percent(difference.session_sd)}, as is assumed"
    return f"{100 * difference.session_sd:.1f} %"


def _at_most(upper: float) -> str:
    if upper <= 1:
        return "no slower"
    return f"at most {at_most_percent(upper - 1)} slower"


def _slow_launches(difference: SidesDifference) -> str:
    share = difference.share
    counts = (
        f"{share.current} of {counted(share.current_launches, 'newer launch')} were in a slow mode,"
        f" {sum(share.baseline)} of {counted(sum(share.baseline_launches), 'older launch')}"
    )
    if difference.chance_all_slow:
        return (
            f"{counts}; possibly all newer ones are (probability {difference.chance_all_slow:.2g})"
        )
    return f"{counts} (chance {share.chance:.2g})"
