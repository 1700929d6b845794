"""The witness of each step: what it cost its rank in CPU time, and how long the rank waited."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

from ddp_perf.system.host.processes import parse_wait_s

_WAITS = Path("/proc/thread-self/schedstat")


class StepWitness:
    """The CPU time of this process and the waits of the calling thread at each step boundary.

    A mark takes two system calls, about 2 µs: the file stays open, and is parsed at the end.
    """

    def __init__(self, *, waits: bool = True) -> None:
        self._cpu_ns: list[int] = []
        self._waits: list[bytes] = []
        self._file = os.open(_WAITS, os.O_RDONLY) if waits and _WAITS.exists() else None

    def mark(self) -> None:
        """Mark a step boundary."""
        self._cpu_ns.append(time.process_time_ns())
        if self._file is not None:
            self._waits.append(os.pread(self._file, 100, 0))

    def close(self) -> None:
        """Close the file. The marks remain."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def cpu_s(self) -> list[float]:
        """Return for each step the CPU seconds of all threads: waits are not part of them."""
        return [(end - start) / 1e9 for start, end in itertools.pairwise(self._cpu_ns)]

    def waited_s(self) -> list[float]:
        """Return for each step how long the thread was ready to run, but had no core, in seconds.

        The list is empty if the kernel does not count this time, or if it was not to be read.
        """
        waits = [parse_wait_s(text.decode()) for text in self._waits]
        known = [wait_s for wait_s in waits if wait_s is not None]
        if len(known) < len(waits):
            return []
        return [end - start for start, end in itertools.pairwise(known)]


class NoWitness:
    """The stand-in of a rank on a GPU, whose host may set the pace: it reads nothing."""

    def mark(self) -> None:
        """Read nothing at a step boundary."""

    def close(self) -> None:
        """Close nothing."""

    def cpu_s(self) -> list[float]:
        """Return no CPU time."""
        return []

    def waited_s(self) -> list[float]:
        """Return no wait."""
        return []
