"""Measure how often an absolute target is called met, missed or undecided.

``python tests/quality/targets.py [--trials N] [--seed N]`` prints the table of docs/targets.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import numpy.typing as npt

from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.stats.rule.looks import next_look
from ddp_perf.stats.rule.target import judge_target
from tests.quality.bounds import with_interval

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
LOOKS = ((5,), (5, 20))
# How sessions differ (sd of the log), and how far their mean is above the target.
SESSIONS = ((0.0, (0.0, 0.01, 0.03)), (0.02, (0.0, 0.01, 0.04)))


def outcome_of(logs: Floats, looks: tuple[int, ...]) -> Outcome:
    """Judge the launches at each look until they are decided."""
    launches: int | None = looks[0]
    while launches is not None:
        judged = judge_target(np.exp(logs[:launches]), 1.0, at_least=True, looks=looks)
        if judged.outcome is not Outcome.UNDECIDED:
            break
        verdict = Verdict(outcome=judged.outcome, reason="", more_launches=judged.more_launches)
        launches = next_look(verdict, launches, looks)
    return judged.outcome


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
        outcome_of(
            at + session_sd * random.standard_normal() + MACHINES[machine](random, looks[-1]),
            looks,
        )
        for _ in range(trials)
    ]
    return outcomes.count(Outcome.MEETS_TARGET), outcomes.count(Outcome.MISSES_TARGET)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"per cent of {options.trials:,} sessions (95 % interval), launches of {LAUNCH_SD:.0%}")
    print(f"{'launches':24} {'looks':8} {'sessions':9} {'above':>6} {'met':>20} {'missed':>20}")
    for machine in MACHINES:
        for looks in LOOKS:
            for session_sd, distances in SESSIONS:
                for at in distances:
                    counts = error_rates(
                        machine,
                        looks,
                        at=at,
                        trials=options.trials,
                        seed=options.seed,
                        session_sd=session_sd,
                    )
                    met, missed = (with_interval(n, options.trials, 2) for n in counts)
                    print(
                        f"{machine:24} {', '.join(map(str, looks)):8} {session_sd:<9.0%}"
                        f" {at:6.0%} {met:>20} {missed:>20}"
                    )


if __name__ == "__main__":
    main()
