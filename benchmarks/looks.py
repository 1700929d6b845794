"""Measure interim looks: what they find, what they cost, and their false alarms.

``python benchmarks/looks.py [--trials N] [--seed N]`` prints the table alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process a core is all there is to use

import msgspec
import numpy as np

from benchmarks.bounds import Bound, with_interval
from benchmarks.families import LAUNCHES, SESSIONS, Floats
from ddp_perf.core.verdict import Outcome
from ddp_perf.stats.rule.looks import next_look
from tests.judging import judge

TOLERANCE, ALPHA = 0.02, 0.001
FALSE_ALARMS = Bound(rate=3 * ALPHA)
MOST = 4 * LAUNCHES
SLOW_DOWNS = (1.0, 1.03, 1.05)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine whose sessions and launches have these sds, on the log scale."""

    name: str
    sds: Callable[[np.random.Generator], Sequence[float]]


MACHINES = (
    Machine(name="quiet", sds=lambda random: (0.005, 0.005)),
    Machine(name="restless launches", sds=lambda random: (0.003, 0.03)),
    Machine(
        name="mixed, 0.2 to 3 %",
        sds=lambda random: np.exp(random.uniform(np.log(0.002), np.log(0.03), 2)).tolist(),
    ),
)
PLANS = ((5,), (5, 10), (5, 20), (5, 10, 20))
LOOKS_TITLE = (
    f"More launches while undecided, {SESSIONS} sessions of {LAUNCHES} launches,"
    " per cent of trials (95 % interval):\n"
    f"{'machine':20} {'looks at':11}{'alarms':>19}{'+3 %':>19}{'+5 %':>19}{'PASS':>19}"
    f"{'launches':>10}"
)


def looks_tasks(
    seed: int, trials: int
) -> tuple[list[int], list[tuple[int, ...]], list[int], list[int]]:
    """Return the arguments of `several_looks`: machine and plan by number, seed, trials."""
    machines = [machine for machine in range(len(MACHINES)) for _ in PLANS]
    plans = [*PLANS] * len(MACHINES)
    return machines, plans, [seed] * len(plans), [trials] * len(plans)


def several_looks(
    number: int, looks: tuple[int, ...], seed: int, trials: int
) -> tuple[str, list[str]]:
    """Return a row of the table and the bound that it breaks, if any.

    Rows of a machine share trials.
    """
    machine, random = MACHINES[number], np.random.default_rng(seed)
    found = dict.fromkeys(SLOW_DOWNS, 0)
    passed, launches = 0, []
    for _ in range(trials):
        sessions = _session_levels(random, *machine.sds(random))
        for by in SLOW_DOWNS:
            outcome, taken = _judge(sessions, by, looks)
            found[by] += outcome is Outcome.REGRESSION
            if by == 1.0:
                passed += outcome is Outcome.PASS
                launches.append(taken)
    row = f"{machine.name:20} {', '.join(map(str, looks)):11}"
    row += f"{with_interval(found[1.0], trials, 2):>19}"
    for events in (found[1.03], found[1.05], passed):
        row += f"{with_interval(events, trials):>19}"
    row += f"{np.mean(launches):10.1f}"
    if FALSE_ALARMS.exceeded(found[1.0], trials):
        return row, [f"looks at {looks}, {machine.name}: {found[1.0]} of {trials} false alarms"]
    return row, []


def _session_levels(random: np.random.Generator, session: float, launch: float) -> Floats:
    """Draw sessions × launches, the current one last, each with the most launches it may take."""
    levels = random.normal(0, session, SESSIONS + 1)
    return np.exp(levels[:, None] + random.normal(0, launch, (SESSIONS + 1, MOST)))


def _judge(sessions: Floats, by: float, looks: tuple[int, ...]) -> tuple[Outcome, int]:
    """Return the outcome, and how many launches it took. A baseline session has as many as
    the first look."""
    baseline = sessions[:-1, :LAUNCHES, None].tolist()
    look: int | None = looks[0]
    while look is not None:
        launches = look
        verdict = judge(
            (by * sessions[-1, :launches, None]).tolist(),
            baseline,
            tolerance=TOLERANCE,
            alpha=ALPHA,
            looks=looks,
        )
        look = next_look(verdict, launches, looks)
    return verdict.outcome, launches


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000, help="per machine (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all simulations (%(default)s)")
    options = parser.parse_args()
    broken: list[str] = []
    print(LOOKS_TITLE)
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for text, failures in pool.map(several_looks, *looks_tasks(options.seed, options.trials)):
            print(text, flush=True)
            broken += failures
    print(f"False alarms: {FALSE_ALARMS.text(options.trials)}.")
    print("\n".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
