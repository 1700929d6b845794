"""Measure how often a sweep finds the best setting, and how often it is wrong about its gain.

    python benchmarks/sweep.py [--trials N] [--seed N]

Simulated launches of 2 s in a budget of 10 minutes: log-normal noise of a launch of 1, 3 and 10 %,
and a drift of the whole machine of ± 20 %. "best" is the share of sweeps that end with the best
setting, "near" with one within 1 % of it, "FASTER" those that call it so; "chance" is the mean of
the stated probability that the named setting is the best. With nothing to find, every FASTER is a
false one. It exits with 1 if those exceed their rate beyond chance.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from benchmarks.bounds import Bound, with_interval
from ddp_perf.duel.sweep.halving import ALPHA, SweepResult, sweep_result
from tests.builders import RUNTIME
from tests.unit.duel.sweep.sweeps import PlayedMachine, run_sweep

NOISES = (0.01, 0.03, 0.1)
DRIFT = 0.2
BUDGET_S = 600.0
# Costs of 15 settings beside the suite's own, which costs 1.
LANDSCAPES = {
    "one 10 % faster": (0.9, *[1.0] * 14),
    "one 5 % faster": (0.95, *[1.0] * 14),
    "spread evenly": tuple(np.linspace(0.9, 1.3, 15)),
    "nothing to find": (1.0,) * 15,
}


def swept(cost_of: Mapping[int, float], noise: float, seed: int) -> SweepResult:
    """Sweep the bucket sizes of these costs on a simulated machine."""
    machine = PlayedMachine(
        lambda case: cost_of.get(int(case.training.ddp.bucket_cap_mb), 1.0),
        noise=noise,
        drift=DRIFT,
        seed=seed,
    )
    words = f"bucket_cap_mb={','.join(map(str, sorted(cost_of)))}"
    with mock.patch("time.monotonic", machine.clock):
        run, _ = run_sweep(machine, words, budget_s=BUDGET_S)
    return sweep_result(run, began="", wall_s=0.0, runtime=RUNTIME)


def row(name: str, noise: float, seed: int, trials: int) -> int:
    """Print the rates of one landscape and noise, and return the number of FASTER."""
    random, best, near, faster, chances = np.random.default_rng(seed), 0, 0, 0, []
    costs = LANDSCAPES[name]
    for _ in range(trials):
        sizes = random.permutation(len(costs)) + 1
        cost_of = dict(zip(sizes.tolist(), costs, strict=True))
        result = swept(cost_of, noise, int(random.integers(2**31)))
        named = {f"bucket_cap_mb={size}": cost for size, cost in cost_of.items()}
        cost = 1.0 if result.best is None else named[result.best]
        best += cost == min(1.0, *costs)
        near += cost <= 1.01 * min(1.0, *costs)
        faster += result.is_faster
        chance = {one.name: one.chance for one in result.settings} | {None: result.base_chance}
        chances.append(chance[result.best] or 0.0)
    shares = [with_interval(count, trials, 0) for count in (best, near, faster)]
    print(
        f"{name:18}{noise:>7.0%}"
        + "".join(f"{share:>15}" for share in shares)
        + f"{np.mean(chances):>9.2f}",
        flush=True,
    )
    return faster


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if false alarms exceed their rate beyond chance."""
    parser = argparse.ArgumentParser(description="How often a sweep finds the best setting.")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(f"{options.trials} sweeps of 15 settings, seed {options.seed}; per cent, 95 % interval")
    print(f"{'':18}{'noise':>7}{'best':>15}{'near':>15}{'FASTER':>15}{'chance':>9}")
    wrong = 0
    for name in LANDSCAPES:
        for noise in NOISES:
            faster = row(name, noise, options.seed, options.trials)
            wrong += faster if name == "nothing to find" else 0
    bound, trials = Bound(rate=ALPHA), len(NOISES) * options.trials
    print(f"false FASTER: {wrong} of {trials}; {bound.text(trials)}")
    return int(bound.exceeded(wrong, trials))


if __name__ == "__main__":
    sys.exit(main())
