"""Steps are timed from boundary to boundary, by the clock of the device."""

from __future__ import annotations

import time

import pytest
import torch

from ddp_perf.worker.timing.clock import HostClock, step_clock


@pytest.fixture
def readings(monkeypatch):
    """``readings(…)`` makes the host's clock return these values."""

    def set_to(*values):
        left = iter(values)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: next(left))

    return set_to


def test_intervals_lie_between_the_marks(readings):
    readings(10**9, 3 * 10**9, 3_500_000_000)
    clock = HostClock()
    for _ in range(3):
        clock.mark()

    assert clock.intervals_s(lambda: None) == [2.0, 0.5]


@pytest.mark.parametrize("marks", [0, 1])
def test_a_clock_with_less_than_two_marks_has_no_interval(marks):
    clock = HostClock()
    for _ in range(marks):
        clock.mark()

    assert clock.intervals_s(lambda: None) == []


def test_a_cpu_is_timed_by_the_host():
    assert isinstance(step_clock(torch.device("cpu"), 3), HostClock)


def test_a_gpu_is_timed_on_its_own_stream_whatever_the_current_one_is(gpu, monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: asked.append(device))

    step_clock(torch.device("cuda", 1), 3)

    assert asked == [torch.device("cuda", 1)]


def test_no_event_is_made_in_the_timed_loop(gpu):
    clock = step_clock(torch.device("cuda", 0), 3)
    begun_s = gpu.now_s
    for _ in range(4):
        clock.mark()
        gpu.work(0.01)

    assert gpu.now_s == begun_s  # the host spent no time on events
    assert clock.intervals_s(lambda: None) == pytest.approx([0.01] * 3)
