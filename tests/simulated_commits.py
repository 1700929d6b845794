"""A simulated line of commits whose launches have recorded noise."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ddp_perf.duel.bisect.search import Question, SearchState, Suspects, search_state
from ddp_perf.session.measure.experiment import LoggedLaunch
from tests.builders import make_logged

RECORDED = Path(__file__).parent / "data" / "unchanged_launches.json"
Ask = Callable[[SearchState], Sequence[int]]


@functools.cache
def recorded_logs(case_id: str) -> np.ndarray:
    """Return the logs of step time and CPU time of launches that ran one after another."""
    logs: np.ndarray = np.log(json.loads(RECORDED.read_text(encoding="utf-8"))["cases"][case_id])
    return logs - logs.mean(axis=0)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Commits after good, of which each one of ``steps`` changes the level by a share."""

    length: int
    steps: dict[int, float]  # 0.08: slower by 8 % from this place on
    untestable: frozenset[int] = frozenset()
    case_id: str = "mlp-none-fp32-ws1-b64"
    slow_modes: tuple[float, float] = (0.0, 0.0)  # share of launches, and how much slower they are

    def level(self, place: int) -> float:
        return sum(math.log1p(share) for at, share in self.steps.items() if place >= at)

    def is_right(self, suspects: Sequence[Suspects]) -> bool:
        """Return whether the groups have exactly the steps."""
        return len(suspects) == len(self.steps) and all(
            each.first <= step <= each.last
            for each, step in zip(suspects, sorted(self.steps), strict=True)
        )


def simulated_search(
    line: Line, *, seed: int, most: int, ask: Ask | None = None
) -> tuple[SearchState, list[LoggedLaunch]]:
    """Return the end of a search, and its launches: ``most`` is their budget.

    A block takes recorded launches that ran one after another, from a random place on. ``ask``
    returns the places of a block in place of the search's own pair.
    """
    random = np.random.default_rng(seed)
    logs = recorded_logs(line.case_id)
    question = Question(length=line.length)
    launches: list[LoggedLaunch] = []
    block = 0
    while (now := search_state(question, launches)).ask is not None:
        places = now.ask if ask is None else ask(now)
        if sum(launch.failure is None for launch in launches) + len(places) > most:
            return search_state(question, launches, ended=True), launches
        failed = [place for place in places if place in line.untestable]
        start = random.integers(0, len(logs) - len(places) + 1)
        for offset, at in enumerate(random.permutation(len(places))):
            noise = logs[start + offset] + _slow_mode(line, random)
            launches += _launches(line, places[at], (block, offset, len(places)), noise, failed)
        block += 1
    return now, launches


def _slow_mode(line: Line, random: np.random.Generator) -> float:
    share, slower = line.slow_modes
    return math.log1p(slower) if share and random.random() < share else 0.0


def _launches(
    line: Line, place: int, turn: tuple[int, int, int], noise: np.ndarray, failed: Sequence[int]
) -> list[LoggedLaunch]:
    """Return the launch; nothing for a commit beside one that failed: it was not launched."""
    if failed:
        why = "No module named 'missing'"
        return [make_logged(str(place), turn[0], failure=why)] if place in failed else []
    wall, cpu = np.exp(line.level(place) + noise)
    block, number, arms = turn
    return [make_logged(str(place), block, number, arms=arms, step_time=wall, cpu_time=cpu)]
