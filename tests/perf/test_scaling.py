"""Scaling: N ranks against one rank, at the same batch size per rank."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("efficiency")
def test_scaling_efficiency(ddp_measured, assert_verdict):
    """The efficiency is judged by the ratio of step times within each interleaved round."""
    if (scaling := ddp_measured.figures.scaling) is not None:
        ddp_measured.record(speedup=scaling.speedup, scaling_efficiency=scaling.efficiency)
    assert_verdict()


@pytest.mark.ddp_metric("efficiency")
def test_communication_overhead(ddp_measured, assert_verdict):
    """The scaling overhead, step(N) − step(1), shares the verdict of the efficiency."""
    if (scaling := ddp_measured.figures.scaling) is not None:
        ddp_measured.record(
            scaling_overhead_ms=scaling.overhead_s * 1e3,
            scaling_overhead_fraction=scaling.overhead_fraction,
        )
    assert_verdict()
