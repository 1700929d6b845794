"""Host-bound or device-bound: what the host gains on its GPU shows which."""

from __future__ import annotations

import msgspec
import pytest
import torch

from ddp_perf.core.case import with_training
from ddp_perf.core.strategy import FsdpOptions
from ddp_perf.worker.steps.protocol import follow_plan
from ddp_perf.worker.timing.clock import is_host_bound, waits_for_gpu
from ddp_perf.worker.timing.timed_steps import timed_steps
from tests.builders import make_case, make_launch, make_probe
from tests.simulated_gpu import SimulatedSteps
from tests.unit.worker.script.scripts import make_script_case

CUDA = torch.device("cuda", 0)
STEPS = 20


@pytest.fixture
def found(gpu, monkeypatch):
    """``found(device_s=…, host_s=…)``: the typical step in seconds, and ``is_host_bound`` of it."""
    monkeypatch.setattr(torch.distributed, "barrier", gpu.synchronize)

    def timed(*, reads=False, **step):
        steps = SimulatedSteps(gpu, **step, reads=reads)
        times = follow_plan(timed_steps(steps, STEPS, CUDA), steps.step)
        step_s = times.step_s[STEPS // 2]
        return step_s, is_host_bound(times.lead_s, step_s, waits=reads)

    return timed


@pytest.mark.parametrize(
    ("device_s", "host_s", "step_s", "host_bound"),
    [
        pytest.param(0.010, 0.002, 0.010, False, id="the GPU sets the pace"),
        pytest.param(0.002, 0.010, 0.010, True, id="the host sets the pace"),
        pytest.param(0.010, 0.0095, 0.010, False, id="the host is hardly faster"),
        pytest.param(0.0095, 0.010, 0.010, True, id="the GPU is hardly faster"),
    ],
)
@pytest.mark.parametrize("launches", [1, 10, 500])
def test_the_slower_of_host_and_gpu_sets_the_pace(
    found, device_s, host_s, step_s, host_bound, launches
):
    """With one launch, a slow host has a lead of nearly a step at each boundary."""
    step = found(device_s=device_s, host_s=host_s, launches=launches)

    assert step == (pytest.approx(step_s), host_bound)


@pytest.mark.parametrize(
    ("device_s", "host_s", "host_bound"),
    [(0.030, 0.012, False), (0.012, 0.030, True), (0.030, 0.031, True)],
)
def test_a_full_queue_of_launches_makes_no_step_host_bound(found, device_s, host_s, host_bound):
    """3,000 launches of 10 µs, 4 µs each on the host: its lead ends at 1,024, a third of a step.

    So the GPU is through with the boundary before when the host marks the next one, as it is if it
    waits for its host.
    """
    assert found(device_s=device_s, host_s=host_s, launches=3000)[1] is host_bound


def test_the_pace_is_unknown_if_the_host_reads_a_value_in_each_step(found):
    assert found(device_s=0.010, host_s=0.002, reads=True)[1] is None


@pytest.mark.parametrize(
    ("precision", "probe", "waits"),
    [
        ("fp32", make_probe(), False),
        ("fp32", make_probe(host_reads=2), True),
        ("fp32", make_probe(host_waits=1), True),  # of PowerSGD, for the whole device
        ("fp32", make_probe(host_waits=0), False),
        ("fp32", None, False),  # a captured step: a graph reads nothing
        ("fp16", make_probe(), True),  # the scaler reads whether a gradient was infinite
        ("bf16", make_probe(), False),
    ],
)
def test_a_step_waits_for_its_gpu_if_it_reads_a_value_of_it(precision, probe, waits):
    assert waits_for_gpu(make_case(precision=precision), probe) is waits


def test_a_script_that_was_not_probed_may_wait_for_its_gpu():
    assert waits_for_gpu(make_script_case(tier="gpu"), None)


@pytest.mark.parametrize("cpu_offload", [True, False])
def test_a_step_waits_for_its_gpu_if_fsdp_keeps_the_parameters_on_the_host(cpu_offload):
    case = with_training(make_case(), fsdp=FsdpOptions(cpu_offload=cpu_offload))

    assert waits_for_gpu(case, make_probe()) is cpu_offload


@pytest.mark.parametrize(
    ("ranks", "launch"),
    [
        ((False, True), True),
        ((None, True), True),
        ((False, None), None),
        ((False, False), False),
        ((None, None), None),
    ],
)
def test_a_launch_is_host_bound_if_one_rank_is(ranks, launch):
    case = make_case()
    results = [make_launch(case, host_bound=bound).ranks[0] for bound in ranks]

    assert msgspec.structs.replace(make_launch(case), ranks=tuple(results)).host_bound is launch
