"""A step contains all work that it launched, even if the GPU runs it later."""

from __future__ import annotations

import pytest

from ddp_perf.traces.analysis import steps_of
from tests.unit.traces.kineto import all_reduce, gloo, kernel, launch, operator, step

US = 1e-6


def test_collective_belongs_to_the_step_that_launched_it(timeline):
    first, second = steps_of(
        timeline(
            step(4, 0, 100),
            step(5, 100, 90),
            launch(50, 1),
            all_reduce(120, 20, correlation=1),  # runs in the second
            launch(110, 2),
            kernel("gemm", 130, 30, correlation=2),
        )
    )

    assert (first.number, second.number) == (4, 5)
    assert (first.step_s, second.step_s) == pytest.approx((100 * US, 90 * US))
    assert first.communication_s == pytest.approx(20 * US)
    assert first.exposed_communication_s == pytest.approx(10 * US)  # 130–140 is hidden
    assert second.communication_s == 0
    assert second.computation_s == pytest.approx(30 * US)


def test_event_without_a_launch_belongs_to_the_step_of_its_start(timeline):
    (only,) = steps_of(timeline(step(0, 0, 50), operator("aten::mm", 10, 20), gloo(20, 20)))

    assert only.exposed_communication_s == pytest.approx(10 * US)


def test_work_before_the_first_step_belongs_to_no_step(timeline):
    (only,) = steps_of(timeline(kernel("gemm", 0, 10), step(0, 20, 10), kernel("gemm", 22, 5)))

    assert only.computation_s == pytest.approx(5 * US)


def test_trace_without_steps_has_no_steps(timeline):
    assert steps_of(timeline(kernel("gemm", 0, 10))) == ()


def test_length_of_a_step_is_that_of_the_hosts_annotation(timeline):
    mirrored = {**step(0, 0, 50), "cat": "gpu_user_annotation", "dur": 80}

    (only,) = steps_of(timeline(step(0, 0, 50), mirrored, kernel("gemm", 0, 10)))

    assert only.step_s == pytest.approx(50 * US)
