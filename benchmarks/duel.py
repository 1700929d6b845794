"""Measure the error rates of a duel: false alarms, what it finds, and with how many pairs.

``python benchmarks/duel.py [--trials N] [--seed N] [--half 0|1]`` prints the tables.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core is all there is to use

import msgspec
import numpy as np

from benchmarks.bounds import Bound, with_interval
from benchmarks.duel_machines import MODELS, Machine, normal, recordings
from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.stats.pairs import (
    EQUIVALENCE_ERROR,
    PairedPlan,
    judge_pairs,
    minimum_detectable,
    plan_pair_looks,
)

TOLERANCE, MOST = 0.05, 24
FOUND = (0.03, 0.05, 0.10)
TITLE = (
    f"{'machine':27}{'alpha':>7}{'SLOWER':>19}{'FASTER':>19}{'EQUIVALENT':>19}{'pairs':>7}"
    + "".join(f"{f'+{by:.0%} found':>15}{'pairs':>7}" for by in FOUND)
    + f"{'+5 % EQUIVALENT':>20}{'covered':>9}"
)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """The outcomes at one true slow-down, the pairs taken, and how often the interval held it."""

    outcomes: Counter[DuelOutcome]
    pairs: float
    covered: int


def plan_of(alpha: float, most: int = MOST) -> PairedPlan:
    return PairedPlan(alpha=alpha, tolerance=TOLERANCE, looks=plan_pair_looks(most))


def differences(machine: Machine, random: np.random.Generator, looks: Sequence[int]) -> list[float]:
    """Draw the log ratios of pairs of the same code, each pair in random order."""
    pairs = looks[-1]
    first, second = machine.draw(random, pairs).T
    server = np.arange(pairs) // machine.renewed
    servers = random.normal(0, machine.servers, pairs)[server]
    return ((second - first) * random.choice([-1, 1], pairs) + servers).tolist()


def rates(machine: Machine, plan: PairedPlan, by: float, seed: int, trials: int) -> Rates:
    random, outcomes, pairs, covered = np.random.default_rng(seed), Counter(), 0, 0
    for _ in range(trials):
        logs = np.array(differences(machine, random, plan.looks)) + np.log1p(by)
        verdict = judge_pairs(logs.tolist(), plan)
        outcomes[verdict.outcome] += 1
        pairs += verdict.pairs
        covered += verdict.interval[0] <= 1 + by <= verdict.interval[1]
    return Rates(outcomes=outcomes, pairs=pairs / trials, covered=covered)


def row(machine: Machine, alpha: float, seed: int, trials: int) -> str:
    plan = plan_of(alpha)
    same = rates(machine, plan, 0.0, seed, trials)
    text = f"{machine.name:27}{100 * alpha:5g} %"
    for outcome in (DuelOutcome.SLOWER, DuelOutcome.FASTER, DuelOutcome.EQUIVALENT):
        text += f"{with_interval(same.outcomes[outcome], trials, 2):>19}"
    text += f"{same.pairs:7.1f}"
    for by in FOUND:
        other = rates(machine, plan, by, seed + 1, max(1, trials // 5))
        found, of = other.outcomes[DuelOutcome.SLOWER], max(1, trials // 5)
        text += f"{with_interval(found, of, 0):>15}{other.pairs:7.1f}"
    edge = rates(machine, plan, TOLERANCE, seed + 2, trials)
    wrong = edge.outcomes[DuelOutcome.EQUIVALENT]
    text += f"{with_interval(wrong, trials, 2):>20}{100 * edge.covered / trials:8.1f} %"
    for events, bound in (
        (same.outcomes[DuelOutcome.SLOWER], alpha),
        (same.outcomes[DuelOutcome.FASTER], alpha),
        (wrong, EQUIVALENCE_ERROR),
    ):
        text += " EXCEEDED" if Bound(rate=bound).exceeded(events, trials) else ""
    return text


def detectable_row(sd: float, alpha: float, most: int, seed: int, trials: int) -> str:
    """Return how often the minimum detectable slow-down is found."""
    plan = plan_of(alpha, most)
    least = minimum_detectable(sd, plan)
    found = rates(normal(sd), plan, least, seed, trials).outcomes[DuelOutcome.SLOWER]
    return (
        f"sd of a pair {sd:4.0%}, alpha {alpha:.2%}, {most} pairs: {least:.1%} is found in"
        f" {with_interval(found, trials)} %"
    )


def ended_row(pairs: int, seed: int, trials: int) -> str:
    """Return the false alarms of duels whose time ends after so many of the planned pairs."""
    plan, random, outcomes = plan_of(0.01), np.random.default_rng(seed), Counter()
    for _ in range(trials):
        logs = differences(normal(0.06), random, [pairs])
        outcomes[judge_pairs(logs, plan, ended=True).outcome] += 1
    wrong = with_interval(outcomes[DuelOutcome.SLOWER], trials, 2)
    return f"ended after {pairs} of {MOST} pairs: SLOWER {wrong} %"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000, help="per machine (%(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of all simulations (%(default)s)")
    parser.add_argument("--half", type=int, default=1, help="of the recordings (%(default)s)")
    options = parser.parse_args()
    seed, trials = options.seed, options.trials
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        print(f"{trials} trials, looks at {plan_of(0.01).looks} pairs, in %\n{TITLE}")
        count = len(MODELS)
        tasks = [
            pool.submit(numbered_row, n, 0.01, seed, trials, options.half) for n in range(count)
        ]
        tasks += [
            pool.submit(numbered_row, n, 0.001, seed, trials, options.half) for n in (0, 1, 5)
        ]
        places = range(count, count + len(recordings(options.half)))
        tasks += [pool.submit(numbered_row, n, 0.01, seed, trials, options.half) for n in places]
        tasks += [
            pool.submit(detectable_row, sd, alpha, most, seed, trials)
            for sd in (0.01, 0.03, 0.06, 0.2)
            for alpha, most in ((0.01, 24), (0.001, 24), (0.01, 8))
        ]
        tasks += [pool.submit(ended_row, pairs, seed, trials) for pairs in (5, 8, 17)]
        for task in tasks:
            print(task.result(), flush=True)
    return 0


def numbered_row(number: int, alpha: float, seed: int, trials: int, half: int) -> str:
    """Return the row of a machine by its number: a function cannot go to another process."""
    return row((*MODELS, *recordings(half))[number], alpha, seed, trials)


if __name__ == "__main__":
    sys.exit(main())
