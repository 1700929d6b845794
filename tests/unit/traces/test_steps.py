"""A step owns what it launched, whenever the GPU gets to it."""

from __future__ import annotations

import pytest

from ddp_perf.traces.steps import steps_of
from tests.unit.traces.kineto import all_reduce, gloo, kernel, launch, operator, step

US = 1e-6


def test_a_collective_belongs_to_the_step_that_launched_it(timeline):
    first, second = steps_of(
        timeline(
            *(step(4, 0, 100), step(5, 100, 90)),
            *(launch(50, 1), all_reduce(120, 20, correlation=1)),  # runs in the second
            *(launch(110, 2), kernel("gemm", 130, 30, correlation=2)),
        )
    )

    assert (first.number, second.number) == (4, 5)
    assert (first.step_s, second.step_s) == pytest.approx((100 * US, 90 * US))
    assert first.communication_s == pytest.approx(20 * US)
    assert first.exposed_communication_s == pytest.approx(10 * US)  # 130–140 is hidden
    assert second.communication_s == 0
    assert second.computation_s == pytest.approx(30 * US)


def test_without_a_launch_its_own_start_decides(timeline):
    (only,) = steps_of(timeline(step(0, 0, 50), operator("aten::mm", 10, 20), gloo(20, 20)))

    assert only.exposed_communication_s == pytest.approx(10 * US)


def test_work_before_the_first_step_is_no_steps(timeline):
    (only,) = steps_of(timeline(kernel("gemm", 0, 10), step(0, 20, 10), kernel("gemm", 22, 5)))

    assert only.computation_s == pytest.approx(5 * US)


def test_a_trace_without_steps_has_none(timeline):
    assert steps_of(timeline(kernel("gemm", 0, 10))) == ()


def test_the_last_word_on_a_step_is_the_hosts(timeline):
    mirrored = {**step(0, 0, 50), "cat": "gpu_user_annotation", "dur": 80}

    (only,) = steps_of(timeline(step(0, 0, 50), mirrored, kernel("gemm", 0, 10)))

    assert only.step_s == pytest.approx(50 * US)
