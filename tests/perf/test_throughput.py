"""Throughput: the level of the step must not rise."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("step_time")
def test_throughput(ddp_measured, worker_clock, benchmark, assert_verdict):
    """Throughput, or a collective's bandwidth, shares the verdict of its step time.

    pytest-benchmark's table, JSON and compare show the step times of the ranks.
    """
    benchmark.pedantic(worker_clock.next_step, rounds=worker_clock.steps)
    ddp_measured.record(**ddp_measured.properties)
    assert_verdict()
