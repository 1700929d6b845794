"""What is asked of the profiler."""

from __future__ import annotations

import msgspec


class Profiling(msgspec.Struct, frozen=True, kw_only=True):
    """Trace some steps of every rank, after those that are timed."""

    steps: int
    directory: str  # gets a file of each rank

    def file(self, rank: int) -> str:
        return f"{self.directory}/rank{rank}.json.gz"
