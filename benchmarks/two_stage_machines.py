"""Machines for the two stages: sessions of many cases, and the pairs of launches of some of them.

All figures are logs of a lower-is-better metric. Each case has four metrics, three of them times.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from scipy import signal

from benchmarks.families import LAUNCHES, Floats
from ddp_perf.duel.run import PAIRS_A_SERVER

METRICS = ("step_time", "tail", "efficiency", "peak_memory")
TIMES = 3  # the first so many metrics send a case to the second stage
# How much sessions and launches of each metric differ, in those of the step time.
_SPREADS = np.array([1.0, 0.5, 1.0, 0.1])[:, None, None]
_OF_STEP = np.array([True, False, True, False])[:, None, None]  # they move with the step time
_LASTING = 0.9  # correlation of what drifts, from one launch to the next


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine on which nothing changes; sds are of logs, and those of the step time."""

    name: str
    cases: int = 5
    stored: int = 5  # sessions
    session: float = 0.015
    launch: float = 0.015
    alike: float = 0.0  # correlation of the cases of a session
    law: Literal["normal", "t3"] = "normal"  # of sessions and launches
    slow: tuple[float, float] = (0.0, 0.0)  # this share of launches takes longer by this
    drift: float = 0.0  # within each day: as a trend, and as a state that lasts for ten launches
    servers: float = 0.0  # of the two sides of pairs


def draw_sessions(machine: Machine, random: np.random.Generator) -> Floats:
    """Draw metrics × cases × sessions × launches, today's session last."""
    shape = (len(METRICS), machine.cases, machine.stored + 1)
    common = np.sqrt(machine.alike) * _draw(machine, random, (shape[0], 1, shape[2]))
    moods = np.sqrt(1 - machine.alike) * _draw(machine, random, shape) + common
    levels = machine.session * _SPREADS * moods
    launches = _launches(machine, random, (*shape[1:], LAUNCHES))
    days = _day(machine, random, machine.stored + 1, LAUNCHES * machine.cases)
    in_turn = days.reshape(-1, LAUNCHES, machine.cases).transpose(2, 0, 1)
    return levels[..., None] + launches + in_turn * _OF_STEP[..., None]


def draw_pairs(
    machine: Machine, random: np.random.Generator, cases: int, looks: tuple[int, ...]
) -> Floats:
    """Draw the log ratios of pairs of the same code, each in random order: metrics × cases × pairs.

    The cases take turns. The launches of a side are forks of its server, which is renewed as in
    a duel.
    """
    pairs = looks[-1]
    launches = _launches(machine, random, (cases, pairs, 2))
    day = _day(machine, random, 1, 2 * cases * pairs).reshape(pairs, cases, 2).transpose(1, 0, 2)
    both = launches + day * _OF_STEP[..., None]
    first_is_a = random.choice([-1.0, 1.0], (cases, pairs))
    server = np.arange(pairs) // PAIRS_A_SERVER
    servers = random.normal(size=(len(METRICS), cases, pairs))[..., server]
    ratios: Floats = first_is_a * (both[..., 1] - both[..., 0])
    return ratios + machine.servers * _SPREADS * servers


def slowed(logs: Floats, by: float) -> Floats:
    """Return logs of metrics × anything whose steps take longer by this fraction."""
    moved = np.log1p(by) * _OF_STEP.ravel()
    return logs + moved.reshape(-1, *[1] * (logs.ndim - 1))


def _launches(machine: Machine, random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw what launches differ by. A slow launch is slow in all metrics of the step."""
    noise = machine.launch * _SPREADS[..., None] * _draw(machine, random, (len(METRICS), *shape))
    share, by = machine.slow
    drawn: Floats = noise + np.log1p(by) * (random.random(shape) < share) * _OF_STEP[..., None]
    return drawn


def _day(machine: Machine, random: np.random.Generator, days: int, launches: int) -> Floats:
    """Draw days × launches in time: the state of the machine, around 0."""
    fresh = random.normal(size=(days, launches)) * np.sqrt(1 - _LASTING**2)
    fresh[:, 0] /= np.sqrt(1 - _LASTING**2)
    state = signal.lfilter([1.0], [1.0, -_LASTING], fresh)
    trend = random.normal(size=(days, 1)) * np.linspace(-1, 1, launches)
    drifted: Floats = machine.drift * (state + trend)
    return drifted


def _draw(machine: Machine, random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    if machine.law == "t3":
        return random.standard_t(3, shape) / np.sqrt(3)
    return random.normal(size=shape)
