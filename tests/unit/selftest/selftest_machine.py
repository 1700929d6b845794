"""A simulated machine for the self-test, whose launches can be slowed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ddp_perf.core.case import Tolerances
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.selftest.trials import SelftestRequest, TimedLaunch, percent_of
from tests.builders import CPU_S, make_case, make_launch

STEP_S = 0.02
CASE = make_case(tolerances=Tolerances(step_time=0.05))


def make_request(**changes) -> SelftestRequest:
    fields = {"case": CASE, "launches": 5, "alpha": 0.001}
    return SelftestRequest(**{**fields, **changes})


class Machine:
    """Step times whose logs have sd ``launch``; a slow-down costs ``responds`` times itself.

    ``level`` of the launch's number is the machine's own, 1 where it does not change.
    """

    def __init__(
        self,
        *,
        launch: float = 0.004,
        responds: float = 1.0,
        level: Callable[[int], float] = lambda number: 1.0,
        seed: int = 1,
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._launch, self._responds, self._level = launch, responds, level

    def step_s(self, percent: float, number: int) -> float:
        slower = (1 + self._responds * percent / 100) * self._level(number)
        return STEP_S * slower * math.exp(self._random.normal(0, self._launch))

    def answer(self, request: LaunchRequest):
        """Return the result of a launch, as a launcher does."""
        percent = 100 * sum(injection.amount for injection in request.injections)
        return make_launch(request.case, request.round, step_s=self.step_s(percent, request.round))

    def launches(self, count: int, *, launches: int = 5) -> list[TimedLaunch]:
        """Return the first ``count`` launches of a self-test."""
        percents = [percent_of(number, launches) for number in range(count)]
        return [
            make_timed_launch(percent, self.step_s(percent, number), number)
            for number, percent in enumerate(percents)
        ]


def make_timed_launch(percent: int, step_s: float = STEP_S, number: int = 0) -> TimedLaunch:
    values = {"step_time": step_s, "tail": 1.0, "cpu_time": CPU_S, "peak_memory": 1000.0}
    summary = LaunchSummary(
        round=number,
        values=values,
        control_s=0.002,
        typical_step_s=step_s,
        mean_step_s=step_s,
        p95_step_s=step_s,
        throughput=128 / step_s,
        overhead_s=0.5,
    )
    return TimedLaunch(
        percent=percent, started="2026-01-02T03:04:05+00:00", wall_s=2.0, summary=summary
    )
