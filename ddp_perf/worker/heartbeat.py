"""Progress of every rank, in memory shared with the supervisor: a store, no system call."""

from __future__ import annotations

import ctypes
import mmap


class Heartbeats:
    """One counter a rank. Made before the ranks are forked, so that all share the pages.

    A rank beats when it has a step's forward done and when it has the step done; so the
    rank that hangs is the one that is behind, also where the others wait for it.
    """

    def __init__(self, world_size: int) -> None:
        self._memory = mmap.mmap(-1, world_size * ctypes.sizeof(ctypes.c_uint64))
        self._counters = (ctypes.c_uint64 * world_size).from_buffer(self._memory)

    def beat(self, rank: int) -> None:
        self._counters[rank] += 1

    def read(self) -> list[int]:
        """Beats of each rank so far; two a step."""
        return list(self._counters)
