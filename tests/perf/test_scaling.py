"""Scaling: N ranks against one rank, at the same batch per rank (weak) or in all (strong)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("efficiency")
def test_scaling_efficiency(ddp_measured, assert_verdict):
    """The efficiency is judged by step ÷ ideal step within each interleaved round."""
    if (scaling := ddp_measured.figures.scaling) is not None:
        ddp_measured.record(speedup=scaling.speedup, scaling_efficiency=scaling.efficiency)
    assert_verdict()


@pytest.mark.ddp_metric("efficiency")
def test_communication_overhead(ddp_measured, assert_verdict):
    """The scaling overhead, step − ideal step, shares the verdict of the efficiency."""
    if (scaling := ddp_measured.figures.scaling) is not None:
        ddp_measured.record(
            scaling_overhead_ms=scaling.overhead_s * 1e3,
            scaling_overhead_fraction=scaling.overhead_fraction,
        )
    assert_verdict()
