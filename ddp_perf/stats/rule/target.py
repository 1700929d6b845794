"""Judge whether a session meets an absolute target: the rule, on plain numbers.

The sample is the launch. With y the mean log of the launches' figures, and s their standard
deviation, y ± t s ÷ √k is the interval of what launches of *this session* bring; it does not cover
how sessions differ. A target is met if the whole interval is on its good side, missed if it is on
the bad one, and else undecided. For a session exactly at its target each answer is wrong once in
200; all looks together keep that (Lan & DeMets 1983).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy import special

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.comparison import PASS_LEVEL, Figures, upper_t
from ddp_perf.stats.rule.error_rate import look_levels
from ddp_perf.stats.rule.statistic import LIKELY, MOST

_LEAST_MORE = 2  # launches after a single one, which shows no spread


class TargetJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, with the geometric mean of the launches and its interval.

    ``more_launches`` is about the number of further launches that would decide it if the mean and
    the spread stay; ``likely_launches`` allow for a mean that moves, nine times in ten.
    """

    outcome: Outcome
    value: float
    interval: tuple[float, float] | None  # None: one launch
    more_launches: int | None = None
    likely_launches: int | None = None


def judge_target(
    figures: Figures, bound: float, *, at_least: bool, looks: Sequence[int] = ()
) -> TargetJudgement:
    """Judge one figure for each launch, all above 0, by a lower or an upper ``bound``.

    ``looks`` are the planned numbers of launches at which an undecided case is judged again.
    """
    logs = np.log(np.asarray(figures, dtype=float))
    launches, mean = len(logs), float(logs.mean())
    level, advantage = _level(looks, launches), (mean - math.log(bound)) * (1 if at_least else -1)
    if launches == 1:
        return TargetJudgement(
            outcome=Outcome.UNDECIDED,
            value=math.exp(mean),
            interval=None,
            more_launches=_LEAST_MORE,
        )
    sd = float(logs.std(ddof=1))
    margin = _margin(sd, launches, level)
    outcome, more, likely = Outcome.UNDECIDED, None, None
    if advantage >= margin:
        outcome = Outcome.MEETS_TARGET
    elif -advantage > margin:
        outcome = Outcome.MISSES_TARGET
    else:
        more = _launches_to_decide(abs(advantage), sd, launches, level)
        likely = _launches_to_decide(abs(advantage), sd, launches, level, likely=True)
    return TargetJudgement(
        outcome=outcome,
        value=math.exp(mean),
        interval=(math.exp(mean - margin), math.exp(mean + margin)),
        more_launches=more,
        likely_launches=likely,
    )


def _level(looks: Sequence[int], launches: int) -> float:
    """Return the one-sided error rate of this look: the first one planned with ``launches``."""
    if len(looks) < 2:
        return PASS_LEVEL
    look = min(bisect.bisect_left(looks, launches), len(looks) - 1)
    return look_levels(PASS_LEVEL, [count / looks[-1] for count in looks])[look]


def _margin(sd: float, launches: int, level: float) -> float:
    return upper_t(launches - 1, level) * sd / math.sqrt(launches)


def _launches_to_decide(
    distance: float, sd: float, launches: int, level: float, *, likely: bool = False
) -> int | None:
    """Return how many more launches would decide a mean at this distance; None: not even 100.

    ``likely`` allows for a move of the mean by N(0, s² (1/k − 1/k')) on the way to k' launches.
    """
    later = launches + np.arange(1, MOST + 1)
    margins = -special.stdtrit(later - 1, level) * sd / np.sqrt(later)
    if likely:
        margins += special.ndtri(LIKELY) * sd * np.sqrt(1 / launches - 1 / later)
    decided = np.flatnonzero(distance > margins)
    return int(later[decided[0]]) - launches if decided.size else None
