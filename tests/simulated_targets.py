"""Simulated sessions beside an absolute target: how many are met, and how many missed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.stats.rule.looks import next_look
from ddp_perf.stats.rule.target import judge_target

Floats = npt.NDArray[np.float64]
LAUNCH_SD = 0.01
_SLOW = math.log(1.05)


def _slow_mode(random: np.random.Generator, count: int) -> Floats:
    """Return launches of which a tenth is 5 % slower, around their own mean."""
    slow = random.random(count) < 0.1
    return LAUNCH_SD * random.standard_normal(count) - _SLOW * slow + 0.1 * _SLOW


# The logs of a session's launches around the session's own level.
MACHINES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda random, count: LAUNCH_SD * random.standard_normal(count),
    "t with 3 df": lambda random, count: LAUNCH_SD * random.standard_t(3, count),
    "a tenth is 5 % slower": _slow_mode,
}


def error_rates(
    machine: str,
    looks: tuple[int, ...],
    *,
    at: float,
    trials: int,
    seed: int,
    session_sd: float = 0.0,
) -> tuple[int, int]:
    """Return how many sessions of a machine at exp(``at``) × its target are met and missed."""
    random = np.random.default_rng(seed)
    outcomes = [
        _outcome_of(
            at + session_sd * random.standard_normal() + MACHINES[machine](random, looks[-1]),
            looks,
        )
        for _ in range(trials)
    ]
    return outcomes.count(Outcome.MEETS_TARGET), outcomes.count(Outcome.MISSES_TARGET)


def _outcome_of(logs: Floats, looks: tuple[int, ...]) -> Outcome:
    """Judge the launches at each look until they are decided."""
    launches: int | None = looks[0]
    while launches is not None:
        judged = judge_target(np.exp(logs[:launches]), 1.0, at_least=True, looks=looks)
        if judged.outcome is not Outcome.UNDECIDED:
            break
        verdict = Verdict(outcome=judged.outcome, reason="", more_launches=judged.more_launches)
        launches = next_look(verdict, launches, looks)
    return judged.outcome
