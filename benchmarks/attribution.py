"""Measure how often the cause that is named first is the true one, for causes without a rule.

    python benchmarks/attribution.py measure [--minutes 30] [--seed 1] [--folder FOLDER]
    python benchmarks/attribution.py score [--folder FOLDER]

`measure` records sessions of a workload that computes: as it is, and slowed by each cause of
`attribution_causes`, in random order, so that the machine's drift is in all of them. It goes on
where an earlier run ended. `score` judges and explains the recordings with the present rules, so
that its figures can be computed again without measuring.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.attribution_causes import CAUSES, UNCHANGED, Effect
from benchmarks.attribution_effects import edited, obstacle, record_session
from benchmarks.attribution_score import BASE, answer_all, read_recordings, report

FOLDER = Path(__file__).parent / "data" / "attribution"
BASES = 3  # of each round


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One session of the plan."""

    number: int
    cause: str
    size: str
    effect: Effect

    @property
    def file(self) -> str:
        return f"{self.number:03}.{self.cause}.{self.size}.json.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("measure", "score"))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.command == "measure":
        measure(options.folder, options.seed, 60 * options.minutes)
    print(*report(answer_all(read_recordings(options.folder))), sep="\n")


def measure(folder: Path, seed: int, budget_s: float) -> None:
    """Record the sessions of the plan that are missing, as long as the next one fits the budget."""
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    seconds: list[float] = []
    for turn in plan(seed):
        if (folder / turn.file).exists():
            continue
        spent_s = time.monotonic() - begun
        if spent_s + statistics.median(seconds or [0.0]) > budget_s:
            return
        print(f"{spent_s / 60:5.1f} min  {turn.file}", file=sys.stderr, flush=True)
        try:
            record_session(turn.effect, folder / turn.file, explain=turn.cause != BASE)
        except subprocess.CalledProcessError:
            raise SystemExit(f"{turn.file}: the session failed; start again to go on") from None
        seconds.append(time.monotonic() - begun - spent_s)


def plan(seed: int) -> Iterator[Turn]:
    """Yield sessions without an end: each round has every cause once, in random order.

    The sizes of a cause take turns. The same seed yields the same plan on the same machine.
    """
    order = random.Random(seed)
    causes = []
    for cause in CAUSES:
        reasons = {reason for one in cause.sizes.values() if (reason := obstacle(one))}
        if reasons:
            print(f"{cause.name}: left out: {'; '.join(sorted(reasons))}", file=sys.stderr)
            continue
        for effect in cause.sizes.values():
            edited(effect)  # a text that is not in the workload fails before any measuring
        sizes = list(cause.sizes.items())
        order.shuffle(sizes)
        causes.append((cause.name, itertools.cycle(sizes)))
    numbers = itertools.count()
    while True:
        turns = [(name, *next(sizes)) for name, sizes in causes]
        turns += [(BASE, "one", Effect())] * BASES + [(UNCHANGED, "one", Effect())]
        order.shuffle(turns)
        for cause_name, size, effect in turns:
            yield Turn(number=next(numbers), cause=cause_name, size=size, effect=effect)


if __name__ == "__main__":
    main()
