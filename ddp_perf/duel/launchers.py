"""The launcher of a side: its ranks run in the side, and nothing else does."""

from __future__ import annotations

from typing import Protocol

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.duel.values import PreparedSide
from ddp_perf.launch.command import CommandLauncher
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import Launcher


class SideLauncher(Launcher, Protocol):
    """A launcher that also counts."""

    def count(self, request: CountRequest) -> StepWork | LaunchFailure:
        """Count a step of one rank, on a CPU. Raises LaunchError if no rank can be started."""
        ...


def side_launcher(prepared: PreparedSide) -> SideLauncher:
    """Return a launcher of the side, which starts nothing before it is asked. Close it."""
    if prepared.command is not None:
        return CommandLauncher(
            prepared.command,
            environ=prepared.environ,
            package=prepared.package,
            working_directory=prepared.root,
        )
    return ForkserverLauncher(
        interpreter=prepared.interpreter,
        environ=prepared.environ,
        package=prepared.package,
        working_directory=prepared.root,  # files that a workload opens by a relative path
    )
