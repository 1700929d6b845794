"""Phases between marks, with waits as separate phases."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import Work

from ddp_perf.worker.step_probe import WAITING, PhaseClock

CPU = torch.device("cpu")
MODULE = nn.Linear(1, 1)


class Done(Work):
    """A collective that is finished."""

    def wait(self, *timeout):
        return True


@pytest.fixture
def clock():
    clock = PhaseClock(CPU)
    clock.start()
    return clock


def phases_of(clock):
    return [interval.phase for interval in clock.intervals()]


def test_each_mark_ends_a_phase(clock):
    for phase in ("data", "forward", "backward"):
        clock.mark(phase)
    assert phases_of(clock) == ["data", "forward", "backward"]
    assert all(interval.wall_s > 0 for interval in clock.intervals())


def test_computation_uses_cpu_time(clock):
    torch.rand(400, 400) @ torch.rand(400, 400)
    clock.mark("forward")
    (interval,) = clock.intervals()
    # Which of them is larger depends on the time between reading the one and the other.
    assert interval.thread_s > 0
    assert interval.process_s > 0


def test_an_interval_has_the_cpu_seconds_of_the_main_thread_and_of_all_threads(monkeypatch):
    thread_ns, process_ns = iter([1_000, 2_000_001_000]), iter([5_000, 3_000_005_000])
    monkeypatch.setattr("time.thread_time_ns", lambda: next(thread_ns))
    monkeypatch.setattr("time.process_time_ns", lambda: next(process_ns))
    clock = PhaseClock(torch.device("cpu"))
    clock.start()

    clock.mark("forward")

    (interval,) = clock.intervals()
    assert (interval.thread_s, interval.process_s) == (2, 3)


def test_a_wait_splits_its_phase(clock):
    clock.mark("data")
    with clock.separate_waits(MODULE):
        Work.wait(Done())
        clock.mark("forward")
    assert phases_of(clock) == ["data", "forward", WAITING, "forward"]


def test_separate_waits_restores_the_methods_even_after_an_error(clock):
    before = vars(Work)["wait"]

    def fail():
        with clock.separate_waits(MODULE):
            assert vars(Work)["wait"] is not before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert vars(Work)["wait"] is before
