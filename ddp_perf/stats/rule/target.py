"""Judge whether a session meets an absolute target: the rule, on plain numbers.

The sample is the launch. With y the mean log of the launches' figures, and s their standard
deviation, y ± t s ÷ √k is the interval of what launches of *this session* bring; it does not cover
how sessions differ. A target is met if the whole interval is on its good side, missed if it is on
the bad one, and else undecided. For a session exactly at its target each answer is wrong once in
200; all looks together keep that (Lan & DeMets 1983).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.interval import half_width
from ddp_perf.stats.rule.comparison import PASS_LEVEL, Figures
from ddp_perf.stats.sequential import planned_level, samples_to_decide

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
    advantage = (mean - math.log(bound)) * (1 if at_least else -1)
    if launches == 1:
        return TargetJudgement(
            outcome=Outcome.UNDECIDED,
            value=math.exp(mean),
            interval=None,
            more_launches=_LEAST_MORE,
        )
    sd, level = float(logs.std(ddof=1)), planned_level(PASS_LEVEL, looks, launches)
    margin = half_width(sd, launches, level)
    outcome, more, likely = Outcome.UNDECIDED, None, None
    if advantage >= margin:
        outcome = Outcome.MEETS_TARGET
    elif -advantage > margin:
        outcome = Outcome.MISSES_TARGET
    else:
        more, likely = samples_to_decide(
            lambda later, move: abs(advantage) - move > half_width(sd, later, level),
            samples=launches,
            variance=sd**2,
        )
    return TargetJudgement(
        outcome=outcome,
        value=math.exp(mean),
        interval=(math.exp(mean - margin), math.exp(mean + margin)),
        more_launches=more,
        likely_launches=likely,
    )
