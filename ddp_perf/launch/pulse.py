"""A heartbeat of a forkserver, in memory that it shares with its driver."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

_SIZE = ctypes.sizeof(ctypes.c_uint64)
_READINGS = 5  # that must show the same counter before the server counts as silent


class Pulse:
    """A counter that the server increases and the driver reads. A beat needs no system call."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._count = ctypes.c_uint64.from_buffer(self._memory)

    def beat(self) -> None:
        self._count.value += 1

    def goes_on_until(self, answered: Callable[[float], bool], patience_s: float) -> bool:
        """Wait for ``answered``; return False if there was no beat for ``patience_s`` seconds.

        A silence is noticed at most a fifth of that later. ``answered`` takes the number of
        seconds that it may wait. Readings are counted, not seconds, so a machine that was
        suspended does not lose its server.
        """
        beats, silent = self._count.value, 0
        while not answered(patience_s / _READINGS):
            now = self._count.value
            silent = silent + 1 if now == beats else 0
            beats = now
            if silent == _READINGS:
                return False
        return True


def open_pulse_memory() -> int:
    """Return a descriptor of memory for a Pulse. The last process that closes it frees it."""
    descriptor = os.memfd_create("ddp-perf-pulse")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
