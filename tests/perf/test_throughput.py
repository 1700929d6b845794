"""Throughput: the typical step must not have become slower."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("step_time")
def test_throughput(ddp_measured, worker_clock, benchmark, assert_verdict):
    """Throughput shares the verdict of the step time that it derives from.

    So does the cost, in the currency of the suite's price.
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
    if (cost := ddp_measured.cost) is not None:
        priced = {
            f"cost_per_million_{figures.unit}": cost.per_million,
            "cost_per_epoch": cost.per_epoch,
            "cost_efficiency": cost.efficiency,
        }
        ddp_measured.record(**{name: value for name, value in priced.items() if value is not None})
    assert_verdict("step_time")
