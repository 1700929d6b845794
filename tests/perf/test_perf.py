"""Performance tests: each asserts one metric of every case, and has its name."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("structure")
def test_structure(ddp_measured, assert_verdict):
    """One collective more, or a bucket of another size, is a change of the code."""
    structure = ddp_measured.measurement.launches[0].ranks[0].structure
    ddp_measured.record(
        parameters=structure.parameters,
        collectives_per_step=len(structure.collectives),
        bytes_per_step=sum(collective.bytes for collective in structure.collectives),
    )
    assert_verdict()


@pytest.mark.ddp_metric("loss")
def test_loss(ddp_measured, assert_verdict):
    """The losses of steps 1, 2, 4, … from the initial parameters on are those of the baseline."""
    losses = ddp_measured.measurement.launches[0].losses
    ddp_measured.record(**{f"loss_step_{step}": loss for step, loss in losses.items()})
    assert_verdict()


@pytest.mark.ddp_metric("step_time")
def test_step_time(ddp_measured, worker_clock, benchmark, assert_verdict):
    """The level of the step; throughput, or a collective's bandwidth, follows from it.

    pytest-benchmark's table, JSON and compare show the step times of the ranks.
    """
    benchmark.pedantic(worker_clock.next_step, rounds=worker_clock.steps)
    ddp_measured.record(**ddp_measured.properties)
    assert_verdict()


@pytest.mark.ddp_metric("tail")
def test_tail(ddp_measured, assert_verdict):
    """The slow steps: mean step ÷ its level; the 95th percentile shares its verdict."""
    ddp_measured.record(p95_step_ms=ddp_measured.figures.p95_step_s * 1e3)
    assert_verdict()


@pytest.mark.ddp_metric("efficiency")
def test_efficiency(ddp_measured, assert_verdict):
    """N ranks against one rank, at the same batch per rank (weak) or in all (strong).

    It is judged by step ÷ ideal step within each interleaved round. The scaling overhead, step −
    ideal step, shares its verdict.
    """
    if (scaling := ddp_measured.figures.scaling) is not None:
        ddp_measured.record(
            speedup=scaling.speedup,
            scaling_efficiency=scaling.efficiency,
            scaling_overhead_ms=scaling.overhead_s * 1e3,
            scaling_overhead_fraction=scaling.overhead_fraction,
        )
    assert_verdict()


@pytest.mark.ddp_metric("cpu_time")
def test_cpu_time(ddp_measured, assert_verdict):
    """The metric is the CPU time of all threads: waits, and cores that others take, are no part."""
    assert_verdict()


@pytest.mark.ddp_metric("peak_memory")
def test_peak_memory(ddp_measured, assert_verdict):
    """The metric is the allocator's peak on a GPU, and the peak resident set on a CPU."""
    assert_verdict()


@pytest.mark.ddp_metric("energy")
def test_energy(ddp_measured, assert_verdict):
    """NVML's counter covers warm-ups and measured steps. Only suites with a tolerance gate it."""
    assert_verdict()


@pytest.mark.ddp_metric("nodes")
def test_nodes(ddp_measured, assert_verdict):
    """Each node launches the case by itself. A slow one is not blamed on the code."""
    ratios = {one.node: one.ratio for one in ddp_measured.finding("nodes").nodes if one.ratio}
    ddp_measured.record(**{f"node_{node}": ratio for node, ratio in ratios.items()})
    assert_verdict()


def test_target(ddp_measured, ddp_target, assert_verdict):
    """``ddp_target`` is each target of a case on this accelerator, as in ``target:efficiency``."""
    assert_verdict()
