"""Measure how long a launch takes on this machine's GPUs, at each number of ranks.

    python ci/gpu_pace.py FILE

The limits of ``ci/gpu-proof`` follow it: a card may be twenty times slower than another, and a
launch of eight ranks starts more slowly than one of one.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, LaunchResult
from ddp_perf.launch.launcher import Launcher
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.system.capacity import find_capacity
from ddp_perf.system.files import replace_file
from ddp_perf.system.lease import machine_lease

SUITE = Path(__file__).parents[1] / "bench_configs" / "mlp_scaling.yaml"
LARGEST_BATCH = 4096


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of a launch by its number of ranks, and those of a step of one rank."""

    launch_s: dict[int, float]
    step_s: float

    def launches_s(self, launches: dict[int, int]) -> float:
        """Return the seconds of as many launches of each number of ranks.

        A number of ranks that was not measured takes as long as the next smaller one.
        """
        measured = sorted(self.launch_s)
        nearest = {
            ranks: measured[max(0, bisect.bisect_right(measured, ranks) - 1)] for ranks in launches
        }
        return sum(count * self.launch_s[nearest[ranks]] for ranks, count in launches.items())

    def steps_of(self, seconds: float) -> int:
        """Return the number of steps of one rank that take at least so long."""
        return max(20, math.ceil(seconds / self.step_s))


def measure_pace(cases: Sequence[Case], launcher: Launcher) -> Iterator[Pace]:
    """Launch each case, the one of one rank first, and yield what is known so far."""
    launch_s: dict[int, float] = {}
    step_s = None
    for case in cases:
        outcome = launcher.launch(LaunchRequest(case=case, round=0))
        if not isinstance(outcome, LaunchResult):
            raise SystemExit(str(outcome))
        launch_s[case.world_size] = outcome.wall_s
        step_s = step_s or statistics.median(outcome.step_s)
        yield Pace(launch_s=dict(launch_s), step_s=step_s)


def main(file: Path) -> None:
    capacity = find_capacity()
    cases = load_cases([SUITE], Overrides(batch_sizes=(LARGEST_BATCH,)))
    runnable = [case for case in cases if capacity.obstacle(case) is None]
    with contextlib.ExitStack() as stack:
        gpus = capacity.machine.gpus
        stack.enter_context(machine_lease(patience_s=600, on_wait=print, gpus=gpus))
        launcher = stack.enter_context(contextlib.closing(ServerLauncher()))
        for pace in measure_pace(runnable, launcher):
            replace_file(file, msgspec.json.encode(pace))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
