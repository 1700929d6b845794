"""The error rate over metrics and stages: how it is spent, and who decides what."""

from __future__ import annotations

import math

from scipy import special

from ddp_perf.core.verdict import DuelOutcome, Outcome, PairedVerdict, Verdict
from ddp_perf.stats.rule.comparison import PASS_LEVEL

# One false-alarm rate, divided over the metrics of a session.


def alpha_per_metric(false_alarm_rate: float, metrics: int) -> float:
    """Divide a session's false-alarm rate by its number of verdicts (Bonferroni).

    The rate then applies however the metrics of a session are correlated. With no metric the result
    is the whole rate. Raises ValueError if the rate is not between 0 and 0.5, or the number of
    metrics is negative.
    """
    if not 0 < false_alarm_rate < 0.5:
        raise ValueError(f"a false-alarm rate must lie between 0 and 0.5, not {false_alarm_rate!r}")
    if metrics < 0:
        raise ValueError(f"a number of metrics must not be negative, not {metrics!r}")
    return false_alarm_rate / max(1, metrics)


# The two stages of a session: stored sessions screen its cases, and pairs of launches decide them.
#
# The first stage judges every case by the stored sessions, with a quarter of the session's rate.
# The cases that it cannot clear go to the second stage, in which launches of the reference's code
# and of today's code alternate: pairs do not contain what sessions differ by.
#
# The session keeps its false-alarm rate r. Let k be the number of screened cases. They are chosen
# by stage one alone, and the pairs are fresh: whatever stage one showed, each case's pairs call
# unchanged code SLOWER with a probability of at most ¾ r ÷ k. So all k of them do so with at most ¾
# r, in each outcome of stage one, and hence on average. Stage one by itself is wrong with at most ¼
# r. Both together: r, however cases and metrics are correlated (Bonferroni).


OF_SESSION = 0.25  # of a session's false-alarm rate: the verdicts by stored sessions
_SLOWER_LEVEL = 0.1  # one-sided; with half a tolerance it sends a case to the pairs
_UNKNOWN = 0.5  # the suspicion where no figure says how much slower the code is
# An interval does not state its degrees of freedom, so quantiles of the normal law convert it. They
# ask for the level of 10 % at least: with few degrees of freedom the interval is wider still.
_SLOWER = float(special.ndtri(_SLOWER_LEVEL) / special.ndtri(PASS_LEVEL))  # half-widths
_HALF_WIDTH = -float(special.ndtri(PASS_LEVEL))  # in standard errors


def rate_of_pairs(rate: float, cases: int) -> float:
    """Return the false-alarm rate of each case's pairs: its part of the session's ``rate``.

    ``cases`` is how many have pairs; it must not depend on what the pairs show. Raises ValueError
    if there is none.
    """
    if cases < 1:
        raise ValueError(f"the rate of pairs is for at least one case, not {cases!r}")
    return (1 - OF_SESSION) * rate / cases


def suspicion(verdict: Verdict, tolerance: float) -> float | None:
    """Return how suspicious a verdict by stored sessions is; None: it needs no pairs.

    A verdict needs pairs if it is a REGRESSION; or slower by half a tolerance, and significantly so
    at the one-sided 10 % level; or if twice the tolerance is not ruled out. A verdict that compares
    with no stored session needs none. The suspicion is the probability that the code is slower by
    the tolerance, if each ratio was as likely before: Φ of the distance in standard errors, 1 −
    ``chance`` where this is stated, and one half where there is no valid figure. A REGRESSION comes
    before all others: 1 is added.
    """
    if not verdict.outcome.compares_sessions:
        return None
    if verdict.outcome is Outcome.REGRESSION:
        return 1 + _chance_of_tolerance(verdict, tolerance)
    cleared = verdict.upper is not None and verdict.upper < 1 + 2 * tolerance
    if cleared and verdict.outcome is not Outcome.INVALID and not _is_slower(verdict, tolerance):
        return None
    return _chance_of_tolerance(verdict, tolerance)


def settled_outcome(paired: PairedVerdict, before: Outcome, tolerance: float) -> Outcome:
    """Return the outcome of a case that has pairs, and was ``before`` by the stored sessions.

    Pairs that decide are final, also over a REGRESSION: then it was the machine, or chance. Else
    the outcome stays: its error was counted in the first stage. A change by less than the tolerance
    is neither a REGRESSION nor an IMPROVEMENT.
    """
    if paired.outcome is DuelOutcome.UNDECIDED:
        return before
    if paired.outcome is DuelOutcome.EQUIVALENT:
        return Outcome.PASS
    if paired.outcome is DuelOutcome.FASTER:
        is_large = paired.ratio is not None and paired.ratio <= 1 / (1 + tolerance)
        return Outcome.IMPROVEMENT if is_large else Outcome.PASS
    if paired.ratio is not None and paired.ratio >= 1 + tolerance:
        return Outcome.REGRESSION
    rules_out = paired.interval is not None and paired.interval[1] < 1 + 2 * tolerance
    return Outcome.PASS if rules_out else Outcome.UNDECIDED


def _is_slower(verdict: Verdict, tolerance: float) -> bool:
    """Return whether it is slower by half a tolerance, and significantly so at the 10 % level."""
    if verdict.ratio is None or verdict.ratio < 1 + tolerance / 2:
        return False
    return math.log(verdict.ratio) >= _SLOWER * _half_width(verdict)


def _chance_of_tolerance(verdict: Verdict, tolerance: float) -> float:
    if verdict.chance is not None:
        return 1 - verdict.chance
    if verdict.outcome is Outcome.INVALID or verdict.ratio is None or verdict.interval is None:
        return _UNKNOWN
    beyond = math.log(verdict.ratio) - math.log1p(tolerance)
    error = _half_width(verdict) / _HALF_WIDTH
    if error == 0:
        return float(beyond >= 0)
    return float(special.ndtr(beyond / error))


def _half_width(verdict: Verdict) -> float:
    """Return half the width of the 99 % interval, on the log scale; infinite without one."""
    if verdict.interval is None:
        return math.inf
    low, high = verdict.interval
    return (math.log(high) - math.log(low)) / 2
