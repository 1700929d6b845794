"""Measure the choices around a duel: yardstick, order, servers, best setting.

``python benchmarks/duel_choices.py [--trials N] [--seed N]`` prints the tables.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from benchmarks.bounds import with_interval
from benchmarks.duel_machines import pair_series, recorded_pairs
from benchmarks.families import Floats
from benchmarks.level_recordings import stolen_day
from ddp_perf.stats.level import launch_level
from ddp_perf.stats.pairs import best_chances, choose_yardstick, pair_spread

LAUNCHES = (4, 6, 8)
METRICS = ("step_time", "cpu_time", "tail", "peak_memory")


def yardstick_of_models(seed: int, trials: int) -> None:
    """Print how often CPU time is chosen, and the pairs it takes, in those of the better metric."""
    print("Yardstick: CPU time is chosen, % of trials; pairs ÷ those of the better one")
    random = np.random.default_rng(seed)
    for ratio in (1.0, 1.3, 2.0, 4.0):
        text = f"  wall spread = {ratio} × CPU spread: "
        for launches in LAUNCHES:
            chosen = 0
            for _ in range(trials):
                cpu = random.normal(0, 0.03, launches)
                wall = ratio * (0.6 * cpu + 0.8 * random.normal(0, 0.03, launches))
                yardstick = choose_yardstick(np.exp(wall).tolist(), np.exp(cpu).tolist())
                chosen += yardstick.metric == "cpu_time"
            cost = (chosen + (trials - chosen) * ratio**2) / trials
            text += f"{launches} launches {with_interval(chosen, trials)}, {cost:.2f}; "
        print(text)


def yardstick_of_recordings() -> None:
    """Print the same of all windows of recorded launches, in their order."""
    for half in (0, 1):
        for name, wall, cpu in _recorded_series(half):
            ratio = _spread(wall) / _spread(cpu)
            text = f"  half {half}, {name}: wall {_spread(wall):.1%}, CPU {_spread(cpu):.1%}: "
            for launches in LAUNCHES:
                chosen = [
                    choose_yardstick(np.exp(w).tolist(), np.exp(c).tolist()).metric == "cpu_time"
                    for w, c in _windows(wall, cpu, launches)
                ]
                cost = np.where(chosen, 1.0, ratio**2).mean() / min(1.0, ratio**2)
                text += f"{launches} launches {np.mean(chosen):.0%}, {cost:.2f}; "
            print(text)


def _recorded_series(half: int):
    for case in ("ws1", "ws2"):
        wall, cpu = (pair_series(metric, case, half) for metric in ("step_time", "cpu_time"))
        yield f"pairs, {case}", wall, cpu
    for size in (1, 2):
        launches = [one for one in stolen_day() if one.world_size == size]
        launches = launches[len(launches) // 2 * half :][: len(launches) // 2]
        walls = np.log([launch_level(one.wall) for one in launches])
        cpus = np.log([launch_level(np.max(one.cpu, axis=0).tolist()) for one in launches])
        yield f"stolen time, ws{size}", [walls], [cpus]


def _spread(series: list[Floats]) -> float:
    steps = [pair_spread(np.exp(one).tolist()) ** 2 for one in series]
    return float(np.sqrt(np.mean(steps)))


def _windows(wall: list[Floats], cpu: list[Floats], launches: int):
    for one, other in zip(wall, cpu, strict=True):
        for start in range(len(one) - launches + 1):
            yield one[start : start + launches], other[start : start + launches]


def order_and_servers() -> None:
    """Print the effect of the order in a pair, and of the pair of servers, in recorded pairs."""
    print("Recorded pairs: second ÷ first of a pair (95 %), and servers beside launches (F test)")
    for metric in METRICS:
        cases = defaultdict(lambda: defaultdict(list))
        orders = defaultdict(list)
        for pair in recorded_pairs():
            log = float(np.log(pair["b"][metric] / pair["a"][metric]))
            cases[pair["case"]][pair["server"]].append(log)
            orders[pair["case"]].append(log if pair["first"] == "a" else -log)
        for case, servers in cases.items():
            table, order = np.array(list(servers.values())), np.array(orders[case])
            count, pairs = table.shape
            within = table.var(axis=1, ddof=1).mean()
            between = pairs * table.mean(axis=1).var(ddof=1)
            chance = stats.f.sf(between / within, count - 1, count * (pairs - 1))
            half = stats.t.isf(0.025, order.size - 1) * order.std(ddof=1) / np.sqrt(order.size)
            server = np.sqrt(max(0.0, between - within) / pairs)
            print(
                f"  {metric:12}{case:26} sd of a pair {np.sqrt(within):5.2%}, order"
                f" {order.mean():+.2%} ± {half:.2%}, F {between / within:.2f}"
                f" (chance {chance:.3f}), sd of servers {server:.2%}"
            )


def best_settings(seed: int, trials: int) -> None:
    """Print how often the likeliest setting is the best, by the probability that was stated."""
    print("Best of 8 settings, 6 blocks, noise 3 %: stated probability, and how often it was right")
    random = np.random.default_rng(seed)
    for effect in (0.01, 0.03, 0.1):
        stated = defaultdict(list)
        for _ in range(trials):
            levels = random.normal(0, effect, 8)
            table = levels + random.normal(0, 0.1, (6, 1)) + random.normal(0, 0.03, (6, 8))
            chances = best_chances(table.tolist())
            best = int(np.argmax(chances))
            stated[min(9, int(10 * chances[best]))].append((chances[best], best == levels.argmin()))
        text = f"  settings differ by {effect:.0%}: "
        for _, pairs in sorted(stated.items()):
            chance, right = np.array(pairs).T
            text += f"{chance.mean():.0%}: {right.mean():.0%} of {len(pairs)}; "
        print(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=10_000, help="per row (%(default)s)")
    parser.add_argument("--seed", type=int, default=2, help="of all simulations (%(default)s)")
    options = parser.parse_args()
    order_and_servers()
    yardstick_of_models(options.seed, options.trials)
    yardstick_of_recordings()
    best_settings(options.seed, options.trials // 10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
