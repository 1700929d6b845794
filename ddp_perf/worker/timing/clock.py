"""Clocks of step boundaries, which do not synchronise in the timed loop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Protocol

import torch


class StepClock(Protocol):
    """A clock: call ``mark`` at every step boundary, and ``intervals_s`` once, at the end."""

    def mark(self) -> None:
        """Mark a step boundary."""
        ...

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        """Return the seconds between the marks, and call ``on_step`` at each mark of a GPU."""
        ...


class HostClock:
    """A clock by ``perf_counter_ns``: on a CPU a step is done when its call returns."""

    def __init__(self) -> None:
        self._marks: list[int] = []

    def mark(self) -> None:
        self._marks.append(time.perf_counter_ns())

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        return [(end - start) / 1e9 for start, end in itertools.pairwise(self._marks)]


class CudaClock:
    """A clock by CUDA events, one for each boundary, on the stream that the steps run on.

    ``marks`` events are created in advance. CUDA creates an event when it is first recorded, so
    each is recorded once here, and not for the first time in the timed loop.
    """

    def __init__(self, marks: int) -> None:
        self._stream = torch.cuda.current_stream()
        self._unused = [_event() for _ in range(marks)]
        for event in self._unused:
            event.record(self._stream)
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        event = self._unused.pop() if self._unused else _event()
        event.record(self._stream)
        self._marks.append(event)

    def intervals_s(self, on_step: Callable[[], None]) -> list[float]:
        for event in self._marks:  # the host is ahead: follow the GPU to the end of its queue
            event.synchronize()
            on_step()
        return [start.elapsed_time(end) / 1e3 for start, end in itertools.pairwise(self._marks)]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def step_clock(device: torch.device, steps: int) -> StepClock:
    """Return the clock for ``steps`` steps on ``device``."""
    return CudaClock(steps + 1) if device.type == "cuda" else HostClock()
