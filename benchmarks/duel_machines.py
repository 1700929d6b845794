"""Machines on which a duel is tried: laws of launches, and recorded launches of unchanged code."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.families import Floats
from benchmarks.level_recordings import calm_day, of_size, stolen_day
from ddp_perf.duel.run import PAIRS_A_SERVER
from ddp_perf.stats.level import launch_level

# Pairs of launches of one tree, side A and side B, on a shared 2-core machine: 6 pairs of servers
# (each launch is a fork of its side's server) × 4 cases × 8 pairs, in their order.
PAIRS = Path(__file__).parent / "data" / "aa_pairs.jsonl"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine. ``draw`` makes the log levels of so many pairs of launches, in time (n × 2).

    The launches of a side are forks of its server. The two servers differ by a normal law of sd
    ``servers``, and after each ``renewed`` pairs there are new ones.
    """

    name: str
    draw: Callable[[np.random.Generator, int], Floats]
    servers: float = 0.0
    renewed: int = 1000


def normal(sd: float) -> Machine:
    return Machine(
        name=f"normal, {100 * sd:g} %",
        draw=lambda random, pairs: random.normal(0, sd / np.sqrt(2), (pairs, 2)),
    )


def slow_modes(share: float, sd: float = 0.03, by: float = 0.3) -> Machine:
    def draw(random: np.random.Generator, pairs: int) -> Floats:
        launches = random.normal(0, sd / np.sqrt(2), (pairs, 2))
        return launches + np.log1p(by) * (random.random((pairs, 2)) < share)

    return Machine(name=f"{share:.0%} slow by {by:.0%}, {100 * sd:g} %", draw=draw)


def served(sd: float, servers: float, renewed: int = 1000) -> Machine:
    name = f"{100 * sd:g} %, servers {100 * servers:g} %"
    if renewed != 1000:
        name += f" × {renewed}"
    return msgspec.structs.replace(normal(sd), name=name, servers=servers, renewed=renewed)


def heavy(random: np.random.Generator, pairs: int) -> Floats:
    return random.standard_t(3, (pairs, 2)) * 0.03 / np.sqrt(6)


def skewed(random: np.random.Generator, pairs: int) -> Floats:
    return random.exponential(0.03 / np.sqrt(2), (pairs, 2))


def drifting(random: np.random.Generator, pairs: int) -> Floats:
    """Draw launches of which 70 % of the variance moves within minutes (autocorrelation 0.8)."""
    moves = [random.normal()]
    for _ in range(2 * pairs - 1):
        moves.append(0.8 * moves[-1] + 0.6 * random.normal())
    return 0.03 * np.reshape(moves, (pairs, 2)) + random.normal(0, 0.02, (pairs, 2))


def recorded(name: str, series: list[Floats]) -> Machine:
    """Replay one of the series in its order, from a random place, and from its start at its end."""

    def draw(random: np.random.Generator, pairs: int) -> Floats:
        one = series[random.integers(len(series))]
        start = random.integers(len(one))
        return one[(start + np.arange(2 * pairs)) % len(one)].reshape(pairs, 2)

    return Machine(name=name, draw=draw)


MODELS = (
    normal(0.03),
    normal(0.06),
    Machine(name="Student's t, 3 df, 3 %", draw=heavy),
    Machine(name="exponential, 3 %", draw=skewed),
    Machine(name="drift within minutes", draw=drifting),
    slow_modes(0.05),
    slow_modes(0.10),
    slow_modes(0.50),
    slow_modes(0.25, sd=0.002),
    slow_modes(0.50, sd=0.002),
    served(0.01, 0.005),  # peak memory of the recorded pairs
    served(0.03, 0.02),  # their tail
    served(0.06, 0.015),  # their step time, if its component is more than chance
    served(0.01, 0.005, PAIRS_A_SERVER),
    served(0.03, 0.02, PAIRS_A_SERVER),
    served(0.06, 0.015, PAIRS_A_SERVER),
    served(0.03, 0.02, 1),
)


def recordings(half: int) -> list[Machine]:
    """Return the recordings, of the first half (0) or of the second half (1) of each."""
    machines = []
    for size in (1, 2):
        sessions = of_size(calm_day(), size)
        logs = [np.log(launch_level(one.wall)) for session in sessions for one in session]
        machines.append(recorded(f"calm day, {size} ranks, wall", [_half(np.array(logs), half)]))
    for size in (1, 2):
        launches = [one for one in stolen_day() if one.world_size == size]
        wall = np.log([launch_level(one.wall) for one in launches])
        cpu = np.log([launch_level(np.max(one.cpu, axis=0).tolist()) for one in launches])
        machines.append(recorded(f"stolen time, {size} ranks, wall", [_half(wall, half)]))
        machines.append(recorded(f"stolen time, {size} ranks, CPU", [_half(cpu, half)]))
    for metric, name in (("step_time", "wall"), ("cpu_time", "CPU")):
        for size in (1, 2):
            series = pair_series(metric, f"ws{size}", half)
            machines.append(recorded(f"pairs, {size} ranks, {name}", series))
    return machines


def pair_series(metric: str, case: str, half: int) -> list[Floats]:
    """Return the logs of the launches of each case and pair of servers, in time."""
    series = defaultdict(list)
    for pair in recorded_pairs():
        if case in pair["case"] and pair["server"] // 3 == half:
            first, second = (pair["first"], "b" if pair["first"] == "a" else "a")
            series[pair["case"], pair["server"]] += [pair[first][metric], pair[second][metric]]
    return [np.log(levels) for levels in series.values()]


def recorded_pairs() -> list[dict]:
    return [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def _half(series: Floats, half: int) -> Floats:
    return np.split(series, [len(series) // 2])[half]
