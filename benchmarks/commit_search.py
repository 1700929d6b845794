"""Measure how often the search for a commit is right, and how many launches it needs.

``python benchmarks/commit_search.py [--trials N] [--seed N]`` prints the table. The noise is
that of recorded launches; the design, the prior of two steps and the number of confirmations were
chosen on the cases of batch 64, so those of batch 128 are the ones to look at. Rows of two steps
are no test of the stated probability, which is that of a mixture with one such search in ten: with
two steps alone, 20 of 184 were wrong (10.9 %, 6.8 to 16.3 %) at a confidence of 95 %.
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
from ddp_perf.duel.bisect.search import CONFIDENCE, SearchState
from tests.simulated_commits import Ask, Line, simulated_search

COMMITS, BUDGET = 32, 300  # launches: 15 minutes of 3 s each
WRONG = Bound(rate=1 - CONFIDENCE)
ONE, TWO = "mlp-none-fp32-ws1-b128", "mlp-ddp-fp32-ws2-b128"
CHOSEN_ON = "mlp-none-fp32-ws1-b64"
UNTESTABLE = frozenset({7, 20})


def three_at_once(now: SearchState) -> Sequence[int]:
    """Return good, bad and the commit in question, in one block."""
    assert now.ask is not None  # else the search is over
    return sorted({0, COMMITS, *now.ask})


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table: what the searches have in common."""

    name: str
    case_id: str = ONE
    steps: tuple[float, ...] = (0.08,)
    untestable: frozenset[int] = frozenset()
    slow_modes: tuple[float, float] = (0.0, 0.0)
    three: bool = False

    def line(self, trial: int, seed: int) -> Line:
        """Return a line whose step is at each place in turn; two steps are at random places."""
        random = np.random.default_rng([seed, trial])
        places = [1 + trial % COMMITS]
        if len(self.steps) > 1:
            places = sorted((1 + random.choice(COMMITS, len(self.steps), replace=False)).tolist())
        return Line(
            length=COMMITS,
            steps=dict(zip(places, self.steps, strict=True)),
            untestable=self.untestable,
            case_id=self.case_id,
            slow_modes=self.slow_modes,
        )


KINDS = (
    *(Kind(name=f"{share:.0%}, 1 rank", steps=(share,)) for share in (0.03, 0.05, 0.08, 0.2)),
    *(
        Kind(name=f"{share:.0%}, 2 ranks", steps=(share,), case_id=TWO)
        for share in (0.03, 0.05, 0.08, 0.2)
    ),
    Kind(name="8%, two untestable", untestable=UNTESTABLE),
    Kind(name="8%, 3 in a block", three=True),
    Kind(name="8%, chosen on", case_id=CHOSEN_ON),
    Kind(name="8%, chosen on, 3 in a block", case_id=CHOSEN_ON, three=True),
    Kind(name="8%, 5% of launches +10%", slow_modes=(0.05, 0.1)),
    Kind(name="4% and 4%", steps=(0.04, 0.04)),
    Kind(name="10% and 10%", steps=(0.1, 0.1)),
    Kind(name="15% and -5%", steps=(0.15, -0.05)),
)


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How the searches of one kind ended."""

    ends: Counter[str]
    launches: tuple[int, ...]
    within: int  # undecided ones whose smallest set has the step


def score(kind: Kind, seed: int, trials: int) -> Score:
    """Return the ends of searches with a step at every place in turn."""
    ends: Counter[str] = Counter()
    launches, within = [], 0
    ask: Ask | None = three_at_once if kind.three else None
    for trial in range(trials):
        line = kind.line(trial, seed)
        now, done = simulated_search(line, seed=1000 * seed + trial, most=BUDGET, ask=ask)
        right = "right" if line.is_right(now.suspects) else "wrong"
        ends[right if now.suspects else now.outcome] += 1
        launches.append(sum(launch.failure is None for launch in done))
        if now.belief is not None and not now.suspects:
            suspects, _ = now.belief.smallest(CONFIDENCE)
            within += all(suspects.first <= step <= suspects.last for step in line.steps)
    return Score(ends=ends, launches=tuple(launches), within=within)


TITLE = (
    f"{COMMITS} commits, at most {BUDGET} launches, confidence {CONFIDENCE:.0%},"
    " per cent of searches (95 % interval):\n"
    f"{'slow-down':<28}{'right':>19}{'wrong':>18}{'undecided (its set right)':>27}"
    f"{'not slower':>12}{'launches: median, 90 %':>24}"
)


def row(kind: Kind, found: Score) -> str:
    trials = len(found.launches)
    undecided = found.ends["undecided"]
    middle, most = np.percentile(found.launches, [50, 90])
    return (
        f"{kind.name:<28}{with_interval(found.ends['right'], trials):>19}"
        f"{with_interval(found.ends['wrong'], trials):>18}"
        f"{f'{undecided} ({found.within})':>27}{found.ends['not slower']:>12}"
        f"{f'{middle:.0f}, {most:.0f}':>24}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    count = len(KINDS)
    print(TITLE)
    failed = []
    with concurrent.futures.ProcessPoolExecutor() as pool:
        scores = pool.map(score, KINDS, [given.seed] * count, [given.trials] * count)
        for kind, found in zip(KINDS, scores, strict=True):
            print(row(kind, found), flush=True)
            if len(kind.steps) == 1 and WRONG.exceeded(found.ends["wrong"], given.trials):
                failed.append(kind.name)
    print(f"wrong: {WRONG.text(given.trials)}")
    if failed:
        print(f"more wrong than stated: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
