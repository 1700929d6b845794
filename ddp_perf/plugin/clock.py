"""The step times of the ranks as a clock that pytest-benchmark can read."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.launch import LaunchResult


class WorkerClock:
    """A clock that only ``next_step`` advances, by the time of the next measured step.

    ``benchmark.pedantic(clock.next_step, rounds=clock.steps)`` therefore records exactly the
    measured steps of all launches, each of its slowest rank, in the order of the launches.
    """

    def __init__(self, launches: Sequence[LaunchResult]) -> None:
        self._steps = [seconds for launch in launches for seconds in launch.step_s]
        self._next = 0
        self._now = 0.0

    @property
    def steps(self) -> int:
        return len(self._steps)

    def __call__(self) -> float:
        return self._now

    def next_step(self) -> None:
        self._now += self._steps[self._next]
        self._next += 1
