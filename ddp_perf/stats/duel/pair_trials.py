"""The number of pairs that a duel is likely to take, by simulated pairs."""

from __future__ import annotations

import math
import statistics

import numpy as np

from ddp_perf.stats.duel.judge_pairs import judge_pairs
from ddp_perf.stats.duel.pair_plan import PairedPlan

_TRIALS = 200  # the mean number of pairs is then known to a tenth
_SEED = 1


def expected_pairs(effect: float, spread: float, plan: PairedPlan) -> float:
    """Return the mean number of pairs that the test takes at a true slow-down, as a fraction.

    ``spread`` is the sd of the log ratio of a pair, whose law is normal. The seed is fixed.
    """
    logs = np.random.default_rng(_SEED).normal(
        math.log1p(effect), spread, (_TRIALS, plan.looks[-1])
    )
    return statistics.fmean(judge_pairs(trial.tolist(), plan).pairs for trial in logs)
