"""Throughput: the typical step must not have become slower."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("step_time")
def test_throughput(ddp_measured, worker_clock, benchmark, assert_verdict):
    """Throughput shares the verdict of the step time that it derives from.

    pytest-benchmark's table, JSON and compare show the workers' own step times.
    """
    benchmark.pedantic(worker_clock.next_step, rounds=worker_clock.steps)
    figures, ranks = ddp_measured.figures, ddp_measured.case.world_size
    ddp_measured.record(
        **{
            "step_time_ms": figures.step_s * 1e3,
            f"throughput_{figures.unit}_per_s": figures.throughput,
            f"throughput_per_rank_{figures.unit}_per_s": figures.throughput / ranks,
        }
    )
    assert_verdict("step_time")
