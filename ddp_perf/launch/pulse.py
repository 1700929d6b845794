"""A sign of life, in memory that a forkserver and its driver share."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable

_SIZE = ctypes.sizeof(ctypes.c_uint64)
_LOOKS = 5  # in as long as the pulse may stand still


class Pulse:
    """A counter: the server adds to it, the driver reads it. A beat is a store, no system call."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._count = ctypes.c_uint64.from_buffer(self._memory)

    def beat(self) -> None:
        self._count.value += 1

    def goes_on_until(self, answered: Callable[[float], bool], patience_s: float) -> bool:
        """Wait for ``answered``, which takes how long to wait; False when there was no beat
        for ``patience_s`` seconds.

        Looks are counted, not seconds: a machine that was suspended has not lost its server.
        """
        beats, silent = self._count.value, 0
        while not answered(patience_s / _LOOKS):
            now = self._count.value
            silent = silent + 1 if now == beats else 0
            beats = now
            if silent == _LOOKS - 1:
                return False
        return True


def open_pulse_memory() -> int:
    """Return a descriptor of memory for a Pulse, which goes with the last process that has it."""
    descriptor = os.memfd_create("ddp-perf-pulse")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
