"""A simulated machine for the self-test, whose launches can be slowed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ddp_perf.core.case import Tolerances
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.selftest.trials import SelftestRequest, percent_of
from ddp_perf.session.measure.experiment import LoggedLaunch
from tests.builders import CPU_S, make_case, make_launch, make_logged

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

    def launches(self, count: int, *, launches: int = 5) -> list[LoggedLaunch]:
        """Return the first ``count`` launches of a self-test."""
        percents = [percent_of(number, launches) for number in range(count)]
        return [
            make_slowed(percent, self.step_s(percent, number), number)
            for number, percent in enumerate(percents)
        ]


def make_slowed(percent: int, step_s: float = STEP_S, number: int = 0) -> LoggedLaunch:
    """A launch of the log, slowed by so many per cent."""
    rest = {"wall_s": 2.0, "tail": 1.0, "cpu_time": CPU_S, "peak_memory": 1000.0}
    return make_logged(str(percent), number, case_id=CASE.id, step_time=step_s, **rest)
