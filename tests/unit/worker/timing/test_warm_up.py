"""Extra warm-ups end when step time and GPU are steady, or at their limit."""

from __future__ import annotations

import itertools
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.core.gpu import GpuLoad
from ddp_perf.worker.steps.protocol import follow_plan
from ddp_perf.worker.timing import timed_steps
from ddp_perf.worker.timing.timed_steps import Window, timed_on_gpu, until_steady
from tests.builders import make_case
from tests.simulated_gpu import SimulatedSteps

CUDA = torch.device("cuda", 0)


def warmed(medians, loads=(None,), *, window_s=None, agree=lambda steady: steady):
    """Return the warm-up of windows with these medians and loads, the last repeated for ever.

    A window lasts as long as its steps, or ``window_s``.
    """
    each = itertools.chain(medians, itertools.repeat(medians[-1]))
    read = itertools.chain(loads, itertools.repeat(loads[-1]))

    def window(count):
        for _ in range(count):
            yield
        step_s = next(each)
        return Window(step_s, count * step_s if window_s is None else window_s, next(read))

    return follow_plan(until_steady(window, agree), lambda: None)


@pytest.mark.parametrize(("step_s", "again"), [(0.001, 200), (0.01, 20), (0.5, 1), (4.0, 1)])
def test_warm_up_repeats_a_fifth_of_a_second_of_steps(step_s, again):
    assert warmed([step_s]).again == again


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [
        pytest.param(0.0015, 10 + 6 * 334, id="short steps: six windows of half a second"),
        pytest.param(0.1, 10 + 6 * 5, id="six windows of five steps"),
        pytest.param(0.5, 10 + 3 * 5, id="long steps: three windows"),
    ],
)
def test_warm_up_of_a_steady_step_lasts_three_seconds_and_three_windows(step_s, steps):
    found = warmed([step_s])

    assert (found.steps, found.steady, found.step_s) == (steps, True, step_s)


@pytest.mark.parametrize(("share", "steady"), [(0.009, True), (0.011, False)])
def test_warm_up_windows_agree_within_one_per_cent(share, steady):
    assert warmed([0.1, *[0.1 * (1 + share), 0.1] * 100]).steady is steady


def test_warm_up_of_a_falling_step_time_takes_three_seconds_after_its_end():
    falling = [0.2, 0.15, 0.12]

    assert warmed([*falling, 0.1]).steps == 10 + 5 * len(falling[1:]) + 5 * 6


@pytest.mark.parametrize(
    ("name", "change", "noise"),
    [("sm_clock_mhz", 1.05, 1.01), ("power_w", 1.5, 1.04), ("temperature_c", 1.1, 1.01)],
)
def test_warm_up_goes_on_until_the_gpu_is_steady(name, change, noise):
    """A steady step time is not enough, and noise of the readings does no harm."""
    moving = [GpuLoad(**{name: round(1000 * change ** (i / 10))}) for i in range(10)]
    steady = [GpuLoad(**{name: round(1000 * change * way)}) for way in (1, noise)]
    if name == "temperature_c":  # in whole degrees
        moving = [GpuLoad(temperature_c=60 + i) for i in range(10)]
        steady = [GpuLoad(temperature_c=70)]
    at_once = warmed([0.1], [steady[0]]).steps

    found = warmed([0.1], [*moving, *steady * 20])

    assert found.steady
    assert found.steps >= at_once + 5 * 6
    assert warmed([0.1], [steady[0], *steady * 30]).steps <= at_once + 5 * 2


def test_warm_up_goes_on_while_the_gpu_of_another_rank_is_not_steady():
    votes = iter([False, False, True])

    found = warmed([0.1], agree=lambda steady: next(votes))

    assert (found.steps, found.steady) == (10 + 5 * (6 + 2), True)


def test_warm_up_asks_the_ranks_only_when_all_of_them_do():
    """The times are equal on all ranks. The readings are not, so they decide nothing alone."""
    asked = []
    warmed([0.1, *[0.1, 0.2] * 100], [GpuLoad(sm_clock_mhz=900)], agree=asked.append)

    assert asked == []


@pytest.mark.parametrize("moving", ["step", "temperature"])
def test_warm_up_that_is_never_steady_ends_after_half_a_minute_and_reports_it(moving):
    medians, loads = [0.1], [None]
    if moving == "step":
        medians = [0.1, 0.15] * 100
    else:
        loads = [GpuLoad(temperature_c=30 + i) for i in range(200)]
    found = warmed(medians, loads)

    assert not found.steady
    assert 30 <= found.steps * 0.15 < 50


def test_warm_up_keeps_the_last_reading_under_load():
    loads = [GpuLoad(sm_clock_mhz=clock) for clock in (1980, 1905, 1900)]

    assert warmed([0.1], loads).load == loads[-1]


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.floats(0.5, 100))
def test_warm_up_always_ends_within_its_limit_after_a_whole_window(medians, window_s):
    found = warmed(medians, window_s=window_s)

    assert 10 <= found.steps <= 10 + 500 * 60
    assert found.again >= 1


@pytest.fixture
def launch(gpu, monkeypatch):
    """``launch(rest_s, …)``: warm-up and timed steps on the simulated GPU after a rest."""
    monkeypatch.setattr(torch.distributed, "barrier", gpu.synchronize)
    monkeypatch.setattr(timed_steps, "slowest", lambda figures, device: list(figures))
    monkeypatch.setattr(timed_steps, "all_agree", lambda yes, device: yes)

    def run(rest_s, *, device_s=0.0015, host_s=0.0005):
        gpu.rest(rest_s)
        steps = SimulatedSteps(gpu, device_s=device_s, host_s=host_s)
        begun_s = gpu.now_s
        warmed_up = follow_plan(timed_steps.warm_up(steps, CUDA, gpu.read_load), steps.step)
        schedule = make_case(tier="gpu").schedule
        plan = timed_on_gpu(steps, schedule, CUDA, after=warmed_up, read_load=gpu.read_load)
        timed = follow_plan(plan, steps.step)
        return warmed_up, timed, gpu.free_s - begun_s

    return run


def test_a_boost_that_decays_in_a_second_is_over_before_the_timed_steps(gpu, launch):
    """After 45 ms three windows of ten steps agreed, and the level depended on the rest."""
    gpu.boost = {1.0: 0.1}
    found = [launch(rest_s) for rest_s in (100.0, 1.0, 0.0)]

    levels = [statistics.median(timed.step_s) for _, timed, _ in found]
    assert all(warmed_up.steady for warmed_up, _, _ in found)
    assert max(levels) / min(levels) < 1.005
    assert min(sum(timed.step_s) for _, timed, _ in found) > 2.0
    assert max(lasted_s for _, _, lasted_s in found) < 15.0


def test_a_gpu_that_warms_for_minutes_is_not_called_steady(gpu, launch):
    """The level depends on the rest, and so do the clocks that are stored with it."""
    gpu.boost = {60.0: 0.06}
    cold, timed_cold, _ = launch(1000.0)
    gpu.work(600.0)
    warm, timed_warm, _ = launch(0.0)

    assert (cold.steady, warm.steady) == (False, True)
    steps = [statistics.median(timed.step_s) for timed in (timed_cold, timed_warm)]
    clocks = [
        statistics.fmean([before.load.sm_clock_mhz, timed.load.sm_clock_mhz])
        for before, timed in ((cold, timed_cold), (warm, timed_warm))
    ]
    assert steps[1] / steps[0] > 1.02
    assert steps[1] / steps[0] == pytest.approx(clocks[0] / clocks[1], rel=0.003)
    assert cold.load.temperature_c < warm.load.temperature_c


def test_the_load_is_read_while_queued_steps_run_and_is_unknown_otherwise(gpu, launch):
    gpu.reading_s = 0.002
    _, bound_by_gpu, _ = launch(0.0)
    warmed_up, bound_by_host, _ = launch(0.0, device_s=0.0005, host_s=0.0015)

    assert bound_by_gpu.load == gpu.read_load()
    assert (warmed_up.load, bound_by_host.load) == (None, None)
    assert warmed_up.steady  # by the step time alone
