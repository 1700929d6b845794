"""Recorded launches of data-parallel training, nothing injected, as figures of each step.

``ddp_gloo_2core``: a calm day. ``ddp_gloo_2core_neighbours``: another machine and workload; every
other session is beside a neighbour, and each step has its witness. ``ddp_gloo_2core_stolen``: a day
on which the hypervisor took up to 76 % of the cores; single rounds instead of sessions.
"""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.launch import waited_long

_DATA = Path(__file__).parent / "data"
_CALM_SESSIONS = 18
STEPS = 55  # of a launch, as in cpu_quick; the second recording goes on for longer


class RecordedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One launch. Times are in ms; a recording may lack a witness, or all but the slowest rank."""

    world_size: int
    wall: tuple[float, ...]  # of each step, slowest rank
    disturbed: tuple[bool, ...] = ()  # of each step; empty: no witness
    # The same, without waits that other threads of the rank must have caused.
    disturbed_by_others: tuple[bool, ...] = ()
    cpu: tuple[tuple[float, ...], ...] = ()  # of each rank and step
    control: float
    foreign: float = 0.0  # share of the cores that other processes took, of the worst rank


Sessions = list[list[RecordedLaunch]]


def calm_day() -> Sessions:
    cases = _read("ddp_gloo_2core.json")["cases"]
    return [
        [
            RecordedLaunch(
                world_size=int(name.split()[0]),
                wall=tuple(launch["step_ms"]),
                control=statistics.median(launch["control_ms"]),
            )
            for name, session in sized
            for launch in session
        ]
        for sized in (
            [(name, cases[name][number]) for name in cases] for number in range(_CALM_SESSIONS)
        )
    ]


def neighbours(*, near: bool) -> Sessions:
    """Return the sessions beside a neighbour, or those without."""
    launches = _read("ddp_gloo_2core_neighbours.json.gz")["launches"]
    return _sessions(
        (launch["session"], _with_ranks(launch))
        for launch in launches
        if (launch["neighbour"] is not None) is near
    )


def stolen_day() -> list[RecordedLaunch]:
    """Return the launches of one and of two ranks, round by round."""
    return [_with_ranks(launch) for launch in _read("ddp_gloo_2core_stolen.json")["launches"]]


def of_size(sessions: Sessions, world_size: int) -> Sessions:
    """Return the launches of one size, by session."""
    return [[one for one in launches if one.world_size == world_size] for launches in sessions]


def _with_ranks(launch: dict[str, Any]) -> RecordedLaunch:
    ranks = launch["ranks"]
    each = [waited_long(rank["step_ms"], rank.get("waited_ms", ())) for rank in ranks]
    return RecordedLaunch(
        world_size=launch["world_size"],
        wall=tuple(map(max, zip(*(rank["step_ms"] for rank in ranks), strict=True))),
        disturbed=tuple(map(any, zip(*each, strict=True))),
        disturbed_by_others=tuple(map(any, zip(*map(_waited_for_others, ranks), strict=True))),
        cpu=tuple(tuple(rank["cpu_ms"]) for rank in ranks),
        control=max(statistics.median(rank["control_ms"]) for rank in ranks),
        foreign=max(rank["foreign"] for rank in ranks),
    )


def _waited_for_others(rank: dict[str, Any]) -> list[bool]:
    """Return for each step whether its rank waited long, if others had all of its unused core.

    The rank has one core. Others had at most the part of the step in which none of its threads
    ran. How much of this part was idle was not recorded, so it is an upper bound.
    """
    steps = rank["step_ms"]
    unused = [step - cpu for step, cpu in zip(steps, rank["cpu_ms"], strict=True)]
    return waited_long(steps, [*map(min, rank.get("waited_ms", ()), unused)])


def _sessions(numbered: Any) -> Sessions:
    by_number: dict[int, list[RecordedLaunch]] = {}
    for number, launch in numbered:
        by_number.setdefault(number, []).append(launch)
    return list(by_number.values())


def _read(name: str) -> dict[str, Any]:
    data = (_DATA / name).read_bytes()
    recording: dict[str, Any] = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    return recording
