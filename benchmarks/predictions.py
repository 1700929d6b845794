"""Check what reasons say of undecided verdicts, on recorded and drawn sessions of unchanged code.

    python benchmarks/predictions.py [--trials N] [--seed N]

"Further stored sessions may decide it" and "… are not likely to": how many of such verdicts were
decided 1, 3, 5 and 10 sessions later, in the order in which they were recorded and in random ones.
"N more launches decide it, 9 times in 10": how many were after as many, drawn as they are or
slower. The wording was chosen on the sessions of `neighbours` and on seed 1; README.md
reports `calm_day` and seed 2. Recorded trials share sessions: their intervals are too narrow.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np

from benchmarks.bounds import with_interval
from benchmarks.level_recordings import Sessions, calm_day, neighbours, of_size
from benchmarks.levels import chosen, tail
from ddp_perf.core.baseline import LEAST_SESSIONS, REFERENCE_SESSIONS
from ddp_perf.core.verdict import Outcome, Verdict
from tests.judging import judge_by_figures

ALPHA = 0.0005
TOLERANCES = (0.02, 0.03, 0.05, 0.1)
LAUNCHES = 5
ORDERS = 20  # random ones of each recording
LATER = (1, 3, 5, 10)  # sessions
Series = list[list[float]]  # sessions × launches
RECORDINGS: dict[str, Callable[[], list[Sessions]]] = {
    "neighbours, chosen on": lambda: [neighbours(near=False), neighbours(near=True)],
    "calm day, held out": lambda: [calm_day()],
}


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """An undecided verdict that launches cannot decide, and what became of it."""

    may: bool  # further sessions may decide it, as the reason says
    decided: dict[int, bool]  # by sessions later: whether that session was decided


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=2000, help="drawn ones (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    print("Undecided verdicts that launches cannot decide: decided in % of trials (95 % interval)")
    for name, days in RECORDINGS.items():
        series = list(recorded(days()))
        _print_replayed(f"{name}, in order", series)
        shuffled = [
            [each[place] for place in random.permutation(len(each))]
            for each in series
            for _ in range(ORDERS)
        ]
        _print_replayed(f"{name}, in random orders", shuffled)
    print("After as many more launches as advised, sessions of 0.3 %, tolerance 5 %:")
    for sd in (0.03, 0.05):
        for slower in (1.0, 1.03, 1.08):
            found = list(drawn_launches(random, options.trials, launch=sd, slower=slower))
            rate = with_interval(sum(found), len(found)) if found else "no such advice"
            print(f"  launches of {sd:.0%}, {slower:.2f} × as slow: {rate} of {len(found)}")


def _print_replayed(name: str, series: Sequence[Series]) -> None:
    trials = [trial for each in series for trial in replayed(each)]
    for advice in (True, False):
        cells = []
        for later in LATER:
            found = [
                one.decided[later] for one in trials if one.may is advice if later in one.decided
            ]
            if found:
                rate = with_interval(sum(found), len(found), 0)
                cells.append(f"{later} later {rate} of {len(found)}")
        print(f"  {name}, {'may' if advice else 'not likely'}: {'; '.join(cells)}", flush=True)


def recorded(days: Sequence[Sessions]) -> Iterator[Series]:
    """Yield the step time and the tail of one rank and of two, on each day."""
    for day in days:
        for size in (1, 2):
            for figure in (chosen, tail):
                yield [[figure(launch) for launch in one] for one in of_size(day, size)]


def replayed(series: Series) -> Iterator[Trial]:
    """Yield each verdict that launches cannot decide, with what later sessions made of it."""
    for tolerance in TOLERANCES:
        for now in range(LEAST_SESSIONS, len(series)):
            verdict = judged(series, now, tolerance)
            if verdict.outcome is not Outcome.UNDECIDED or verdict.more_launches is not None:
                continue
            yield Trial(
                may=verdict.more_sessions is not None,
                decided={
                    later: not judged(series, now + later, tolerance).outcome.is_open
                    for later in LATER
                    if now + later < len(series)
                },
            )


def drawn_launches(
    random: np.random.Generator, trials: int, *, launch: float, slower: float
) -> Iterator[bool]:
    for _ in range(trials):
        levels = random.normal(0, 0.003, 9)
        logs = levels[:, None] + random.normal(0, launch, (9, 200))
        logs[-1] += np.log(slower)
        figures = np.exp(logs).tolist()
        baseline = [one[:LAUNCHES] for one in figures[:-1]]

        def verdict_of(
            launches: int, baseline: Series = baseline, now: list[float] = figures[-1]
        ) -> Verdict:
            return judge_by_figures(now[:launches], baseline, tolerance=0.05, alpha=ALPHA)

        advice = verdict_of(LAUNCHES).likely_launches
        if advice is not None:
            yield not verdict_of(LAUNCHES + advice).outcome.is_open


def judged(series: Series, now: int, tolerance: float) -> Verdict:
    """Judge a session by all before it."""
    return judge_by_figures(
        series[now],
        series[:now],
        tolerance=tolerance,
        alpha=ALPHA,
        reference=REFERENCE_SESSIONS,
    )


if __name__ == "__main__":
    main()
