"""The launches of a search for a commit."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ddp_perf.duel.search_log import Conditions, SearchLog


class CommitLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch of a commit: its figures, or why the commit cannot be launched."""

    place: int  # of the commit on the line; 0: good
    block: int
    started: str  # ISO 8601, UTC
    wall_s: float
    values: dict[str, float] = {}
    failure: str | None = None


class BisectLog(SearchLog[CommitLaunch]):
    """The log of one line of commits and one case."""

    def __init__(self, directory: Path, question: dict[str, str], conditions: Conditions) -> None:
        """Read the launches, or begin the file. Raises ResultsError."""
        super().__init__(CommitLaunch, directory, question, conditions)

    @property
    def launches(self) -> list[CommitLaunch]:
        return self.entries
