"""The verdict in one or two sentences for the engineer whose build went red."""

from __future__ import annotations

import math

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.comparison import SignificanceLevels
from ddp_perf.stats.rule.control import ControlMove
from ddp_perf.stats.rule.statistic import JudgedDifference
from ddp_perf.stats.rule.variance_components import sessions_to_decide

_SLOPE_WORTH_A_WORD = 0.1


def reason_of(
    outcome: Outcome,
    evidence: JudgedDifference,
    risks: SignificanceLevels,
    *,
    more_launches: int | None,
    by_share: bool,
) -> str:
    """Figures first, then what follows from them, then what else should be known."""
    if by_share:
        meaning = "more launches than before fall into the slow mode"
    else:
        meaning = _meaning(outcome, evidence, risks, more_launches)
    clauses = [f"{_figures(evidence)}; {meaning}"]
    if evidence.share.any_slow:
        clauses.append(_slow_launches(evidence))
    if evidence.control is not None:
        clauses.append(_control(evidence.control))
    return ". ".join(clauses)


def _figures(evidence: JudgedDifference) -> str:
    low, high = evidence.comparison.interval
    sessions = evidence.errors.reference_sessions
    return (
        f"{_change(evidence.comparison.ratio)} against {sessions}"
        f" session{'s' if sessions > 1 else ''}"
        f" (99 % interval {_change(low)} to {_change(high)})"
    )


def _meaning(
    outcome: Outcome,
    evidence: JudgedDifference,
    risks: SignificanceLevels,
    more_launches: int | None,
) -> str:
    comparison, level = evidence.comparison, risks.regression
    tolerance = 100 * comparison.tolerance
    detectable = 100 * comparison.minimum_detectable(level)
    found = f"{detectable:.{0 if detectable >= 10 else 1}f} % or more is found 9 times in 10"
    if outcome is Outcome.PASS:
        return f"{2 * tolerance:.3g} % slower, twice the tolerance, is ruled out; {found}"
    if outcome is Outcome.IMPROVEMENT:
        return f"significantly faster, by the tolerance of {tolerance:.3g} % at least"
    if outcome is Outcome.REGRESSION:
        return (
            f"significantly slower (at the {100 * level:.2g} % level), by the tolerance of "
            f"{tolerance:.3g} % at least"
        )
    if outcome is Outcome.SUSPECT:
        return "suspect, not proven: a second session in a row that says so fails"
    if outcome is Outcome.INVALID:
        return "the machine itself moved, further than its baseline sessions account for"
    if more_launches:
        some = f"{more_launches} more launch{'es' if more_launches > 1 else ''}"
        return f"undecided, for only {found}; about {some} would decide it"
    return f"undecided, for only {found}; {sessions_to_decide(evidence.errors, comparison, risks)}"


def _slow_launches(evidence: JudgedDifference) -> str:
    share = evidence.share
    counts = (
        f"{share.current} of {share.current_launches} launches were in a slow mode, "
        f"{share.baseline} of {share.baseline_launches} in the baseline"
    )
    if evidence.chance_all_slow:
        return (
            f"{counts}; all of this session's may be, by a chance of {evidence.chance_all_slow:.2g}"
        )
    return f"{counts} (p = {share.p_value:.2g})"


def _control(control: ControlMove) -> str:
    moved = f"The control moved {_change(math.exp(control.shift))}"
    if control.beyond:
        return f"{moved}, further than on any session before; how the case follows is not known"
    if abs(control.explained) < _SLOPE_WORTH_A_WORD * abs(control.shift):
        return f"{moved} and is left out: the case does not follow it"
    return f"{moved}; {_change(math.exp(control.explained))} was taken off: the case follows it"


def _change(ratio: float) -> str:
    """1.05 → +5.0 %; a ratio of three and more as a factor."""
    return f"{100 * (ratio - 1):+.1f} %" if ratio < 3 else f"× {ratio:.3g}"
