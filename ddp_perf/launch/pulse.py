"""A heartbeat of a forkserver, in memory that it shares with its driver."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

from ddp_perf.core.case import Case

_SIZE = ctypes.sizeof(ctypes.c_uint64)
# A beat comes at least once a second, but a busy machine may delay it.
_LEAST_PATIENCE_S, MOST_PATIENCE_S = 5.0, 60.0
_READINGS = 5  # that must show the same counter before the server counts as silent


class Pulse:
    """A counter that the server increases and the driver reads. A beat needs no system call."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._count = ctypes.c_uint64.from_buffer(self._memory)

    def beat(self) -> None:
        self._count.value += 1

    def goes_on_until(self, answered: Callable[[float], bool], patience_s: float) -> bool:
        """Wait for ``answered``; return False if there was no beat for ``patience_s`` seconds."""
        return beats_until(answered, lambda: self._count.value, patience_s)


def beats_until(
    answered: Callable[[float], bool], beats: Callable[[], int], patience_s: float
) -> bool:
    """Wait for ``answered``; return False if ``beats`` was the same for ``patience_s`` seconds.

    A silence is noticed at most a fifth of that later. ``answered`` takes the number of seconds
    that it may wait. Readings are counted, not seconds, so a machine that was suspended does not
    lose its server.
    """
    before, silent = beats(), 0
    while not answered(patience_s / _READINGS):
        now = beats()
        silent = silent + 1 if now == before else 0
        before = now
        if silent == _READINGS:
            return False
    return True


def patience_with(case: Case) -> float:
    """Return the seconds without a beat after which a server with this case is given up."""
    return min(max(case.schedule.step_deadline_s, _LEAST_PATIENCE_S), MOST_PATIENCE_S)


def open_pulse_memory() -> int:
    """Return a descriptor of memory for a Pulse. The last process that closes it frees it."""
    descriptor = os.memfd_create("ddp-perf-pulse")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
