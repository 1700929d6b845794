"""RankProgress is visible across a fork, is separate for each rank, and names the rank's step."""

from __future__ import annotations

import contextlib
import os

import pytest
import torch
import torch.distributed as dist

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.worker.report import Heartbeats, Phase
from ddp_perf.worker.steps.protocol import follow_plan
from ddp_perf.worker.timing import timed_steps
from ddp_perf.worker.timing.clock import HostClock


def beats(heartbeats):
    return [progress.beats for progress in heartbeats.read()]


def test_heartbeats_count_each_rank_separately():
    heartbeats = Heartbeats(3)
    heartbeats.beat(2)
    heartbeats.beat(0)
    heartbeats.beat(2)

    assert beats(heartbeats) == [1, 0, 2]


def test_the_first_rank_of_a_later_node_is_not_rank_0():
    """Its ranks are 8 and 9."""
    heartbeats = Heartbeats(2, first=8)

    heartbeats.enter(9, Phase.TIMED)
    heartbeats.beat(9)

    assert beats(heartbeats) == [0, 1]
    assert heartbeats.read()[1].phase is Phase.TIMED


def test_progress_does_not_change_after_it_was_read():
    heartbeats = Heartbeats(1)
    before = beats(heartbeats)
    heartbeats.beat(0)

    assert before == [0]


def test_progress_of_a_forked_rank_is_visible_here():
    heartbeats = Heartbeats(2)
    pid = os.fork()
    if pid == 0:
        heartbeats.enter(1, Phase.TIMED)
        heartbeats.beat(1)
        os._exit(0)

    assert os.waitpid(pid, 0) == (pid, 0)
    assert beats(heartbeats) == [0, 1]
    assert [progress.phase for progress in heartbeats.read()] == [Phase.START, Phase.TIMED]


class HungError(Exception):
    """A substitute for a step, or a wait for the GPU, that never ends."""


class Steps:
    """Steps that beat as those of a case, and hang in one step after its forward."""

    collects_garbage = False

    def __init__(self, heartbeats, hang_in=None):
        self._heartbeats, self._left = heartbeats, hang_in

    def step(self):
        self.beat()
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise HungError
        self.beat()

    def beat(self):
        self._heartbeats.beat(0)

    def enter(self, phase):
        self._heartbeats.enter(0, phase)


class GpuClock(HostClock):
    """The clock of a GPU that hangs in one of the steps that its host queued."""

    def __init__(self, hang_in=None):
        self._marked, self._hang_in = 0, hang_in

    def mark(self):
        self._marked += 1

    def intervals_s(self, on_step):
        for mark in range(self._marked):
            if mark == self._hang_in:
                raise HungError
            on_step()
        return [0.01] * (self._marked - 1)


@pytest.fixture
def hung_at(monkeypatch):
    """``hung_at(…)``: the phase and step in which a rank on a GPU appears to hang."""

    def hang(*, host_in=None, gpu_in=None, warm_ups=10 + 3 * 5):
        monkeypatch.setattr(dist, "barrier", lambda: None)
        monkeypatch.setattr(timed_steps, "slowest", lambda figures, device: [0.1, 1.0])
        monkeypatch.setattr(timed_steps, "all_agree", lambda yes, device: yes)
        monkeypatch.setattr(timed_steps, "step_clock", lambda device, steps: GpuClock())
        heartbeats, cpu = Heartbeats(1), torch.device("cpu")
        steps = Steps(heartbeats, host_in and warm_ups + host_in)
        with contextlib.suppress(HungError):
            follow_plan(timed_steps.warm_up(steps, cpu, GpuLoad), steps.step)
            monkeypatch.setattr(timed_steps, "step_clock", lambda device, steps: GpuClock(gpu_in))
            follow_plan(timed_steps.timed_steps(steps, 12, cpu), steps.step)
        (progress,) = heartbeats.read()
        return progress.phase, progress.step

    return hang


@pytest.mark.parametrize("step", [1, 7, 12])
def test_progress_names_the_timed_step_in_which_the_host_hangs(hung_at, step):
    assert hung_at(host_in=step) == (Phase.TIMED, step)


@pytest.mark.parametrize("step", [1, 7, 12])
def test_progress_names_the_queued_step_in_which_the_gpu_hangs(hung_at, step):
    assert hung_at(gpu_in=step) == (Phase.FOLLOWED, step)


def test_progress_is_at_step_0_if_the_gpu_hangs_before_the_timed_steps(hung_at):
    assert hung_at(gpu_in=0) == (Phase.FOLLOWED, 0)


def test_progress_in_the_warm_up_has_no_step_number(hung_at):
    assert hung_at(host_in=-3) == (Phase.WARM_UP, None)
