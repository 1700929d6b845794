"""The launches of a search for a commit."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import msgspec

from ddp_perf.core.environment import Environment
from ddp_perf.duel.bisect.commits import CommitLine
from ddp_perf.duel.environments.conditions import digest_of_sources
from ddp_perf.duel.search_log import Conditions, SearchLog
from ddp_perf.duel.sides.cache import cache_shelf


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


def open_log(line: CommitLine, case_id: str, environment: Environment) -> BisectLog:
    """Open the log of a search in the cache, so that whoever asks the same goes on with it.

    Close it. Raises ResultsError.
    """
    question = {
        "repository": line.repository,
        "good": line.commits[0].hash,
        "bad": line.commits[-1].hash,
        "case": case_id,
    }
    conditions: Conditions = {
        **environment.conditions(),
        "ddp_perf": version("ddp-perf"),
    }
    if line.what == "commit":
        conditions["commit"] = None  # it is that of the user's tree, which is not measured
    else:  # a launch is known by the place of its version, and the index may have others by now
        conditions["versions"] = " ".join(commit.short for commit in line.commits)
        conditions["sources of the project"] = digest_of_sources(Path(line.repository))
    return BisectLog(cache_shelf("bisect", 0, os.environ).path, question, conditions)
