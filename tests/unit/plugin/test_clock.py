"""The clock that gives pytest-benchmark the step times of the ranks."""

from __future__ import annotations

import pytest

from ddp_perf.plugin.fixtures import WorkerClock
from tests.builders import make_case, make_launch


def readings(clock):
    """Return what a benchmark of ``next_step`` records with this clock."""
    seen = []
    for _ in range(clock.steps):
        begin = clock()
        clock.next_step()
        seen.append(clock() - begin)
    return seen


def test_the_clock_shows_every_step_of_every_launch_in_order():
    case = make_case()
    launches = [make_launch(case, 0, step_s=(0.1, 0.2)), make_launch(case, 1, step_s=(0.4, 0.3))]

    assert readings(WorkerClock(launches)) == pytest.approx([0.1, 0.2, 0.4, 0.3])


def test_the_clock_does_not_advance_between_steps():
    clock = WorkerClock([make_launch(make_case())])
    clock.next_step()

    assert clock() == clock()
