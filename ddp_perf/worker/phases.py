"""A step cut into phases by the device's own clock, and what the code waits for among them."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import Work

from ddp_perf.worker.clock import step_clock

BETWEEN = "between"  # not part of any step
WAITING = "waiting"


class Interval(NamedTuple):
    """Between two marks. Seconds."""

    phase: str
    wall_s: float
    cpu_s: float  # of the process, its communication threads among them


class PhaseClock:
    """``mark(phase)`` at the end of each phase; waits inside of it are told apart."""

    def __init__(self, device: torch.device) -> None:
        self._clock = step_clock(device, 0)
        self._cpu_ns: list[int] = []
        self._phases: list[str | None] = []  # None: of the phase that goes on

    def start(self) -> None:
        """Begin to mark: what follows belongs to the first phase."""
        self._clock.mark()
        self._cpu_ns.append(time.process_time_ns())

    def mark(self, phase: str) -> None:
        self._note(phase)
        self._phases = [phase if of is None else of for of in self._phases]

    @contextlib.contextmanager
    def waits_apart(self) -> Iterator[None]:
        """Until the end, a collective that Python code waits for is a phase of its own.

        DDP waits for its buckets in C++: those are not seen here.
        """
        wait = Work.wait

        def noted(work: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(None)
            done = wait(work, *args, **kwargs)
            self._note(WAITING)
            return done

        Work.wait = noted  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            Work.wait = wait  # type: ignore[method-assign]

    def intervals(self) -> list[Interval]:
        """All that was marked, in order. Waits for the device."""
        walls = self._clock.intervals_s(lambda: None)
        cpus = [(end - start) / 1e9 for start, end in itertools.pairwise(self._cpu_ns)]
        phases = [phase or BETWEEN for phase in self._phases]
        return [Interval(*row) for row in zip(phases, walls, cpus, strict=True)]

    def _note(self, phase: str | None) -> None:
        self._clock.mark()
        self._cpu_ns.append(time.process_time_ns())
        self._phases.append(phase)
