"""Clocks of step boundaries, which do not synchronise in the timed loop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")


class StepClock(Protocol):
    """A clock: call ``mark`` at every step boundary, and ``intervals_s`` once, at the end."""

    def mark(self) -> None:
        """Mark a step boundary."""
        ...

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        """Return the seconds between the marks, and call ``on_step`` at each mark of a GPU."""
        ...

    def is_followed(self) -> bool:
        """Return whether the device still has to reach the last mark."""
        ...

    def leads_s(self) -> list[float]:
        """Return how far the host was ahead of its GPU at each mark but the first, in seconds.

        The GPU was idle at the first one. Call it after ``intervals_s``. The list is empty if there
        is no GPU.
        """
        ...


class HostClock:
    """A clock by ``perf_counter_ns``: on a CPU a step is done when its call returns."""

    def __init__(self) -> None:
        self._marks: list[int] = []

    def mark(self) -> None:
        self._marks.append(time.perf_counter_ns())

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        return [(end - start) / 1e9 for start, end in itertools.pairwise(self._marks)]

    def is_followed(self) -> bool:
        return False

    def leads_s(self) -> list[float]:
        return []


class CudaClock:
    """A clock by CUDA events, one for each boundary, on the stream that the steps run on.

    ``marks`` events are created in advance. CUDA creates an event when it is first recorded, so
    each is recorded once here, and not for the first time in the timed loop.
    """

    def __init__(self, device: torch.device, marks: int) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._unused = [_event() for _ in range(marks)]
        for event in self._unused:
            event.record(self._stream)
        self._marks: list[torch.cuda.Event] = []
        self._host_s: list[float] = []  # of each mark, by the host's clock

    def mark(self) -> None:
        event = self._unused.pop() if self._unused else _event()
        event.record(self._stream)
        self._marks.append(event)
        self._host_s.append(time.perf_counter())

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        for event in self._marks:  # the host is ahead: follow the GPU to the end of its queue
            event.synchronize()
            on_step()
        return [start.elapsed_time(end) / 1e3 for start, end in itertools.pairwise(self._marks)]

    def is_followed(self) -> bool:
        return not self._marks[-1].query()  # type: ignore[no-untyped-call]

    def leads_s(self) -> list[float]:
        return [
            self._marks[0].elapsed_time(event) / 1e3 - (host_s - self._host_s[0])
            for event, host_s in zip(self._marks[1:], self._host_s[1:], strict=True)
        ]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def read_followed(clock: StepClock, read: Callable[[], T]) -> T | None:
    """Return a reading of a GPU that still runs what was queued when the reading is there.

    None: it was idle by then, and shows other clocks than under load.
    """
    reading = read()
    return reading if clock.is_followed() else None


def step_clock(device: torch.device, steps: int) -> StepClock:
    """Return the clock for ``steps`` steps on ``device``."""
    return CudaClock(device, steps + 1) if device.type == "cuda" else HostClock()
