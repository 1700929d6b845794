"""The phases of a step by the device's own clock, with waits for communication as a phase."""

from __future__ import annotations

import itertools
import time
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import nn

from ddp_perf.worker.probe.waits import note_waits
from ddp_perf.worker.timing.clock import step_clock

BETWEEN = "between"  # not part of any step
WAITING = "waiting"


class Interval(NamedTuple):
    """The time between two marks, in seconds."""

    phase: str
    wall_s: float
    thread_s: float  # CPU time of the main thread
    process_s: float  # CPU time of all threads, including those that communicate


class PhaseClock:
    """A clock of phases: call ``start`` once, and ``mark(phase)`` at the end of each phase."""

    def __init__(self, device: torch.device) -> None:
        self._clock = step_clock(device, 0)
        self._thread_ns: list[int] = []
        self._process_ns: list[int] = []
        self._phases: list[str | None] = []  # None: part of the phase that the next mark names
        self._named = 0  # intervals that a mark has named

    def start(self) -> None:
        """Begin the first phase."""
        self._read()

    def mark(self, phase: str) -> None:
        """End ``phase``: it began at the mark before, waits excluded."""
        self._note(phase)
        for place in range(self._named, len(self._phases)):
            self._phases[place] = self._phases[place] or phase
        self._named = len(self._phases)

    def separate_waits(self, module: nn.Module) -> AbstractContextManager[None]:
        """Count waits of Python code for communication as phase WAITING, in the ``with`` block."""
        return note_waits(module, lambda waited: self._note(WAITING if waited else None))

    def intervals(self) -> list[Interval]:
        """Return all marked intervals in order. Waits for the device."""
        walls = self._clock.intervals_s(lambda: None)
        cpus = [
            [(end - start) / 1e9 for start, end in itertools.pairwise(times)]
            for times in (self._thread_ns, self._process_ns)
        ]
        phases = [phase or BETWEEN for phase in self._phases]
        return [Interval(*row) for row in zip(phases, walls, *cpus, strict=True)]

    def _note(self, phase: str | None) -> None:
        self._read()
        self._phases.append(phase)

    def _read(self) -> None:
        self._clock.mark()
        self._thread_ns.append(time.thread_time_ns())
        self._process_ns.append(time.process_time_ns())
