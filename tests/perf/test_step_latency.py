"""Latency: the slow steps must not become slower than the level of the step."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("tail")
def test_step_latency(ddp_measured, assert_verdict):
    """The 95th percentile shares the verdict of the tail (mean step ÷ its level)."""
    ddp_measured.record(p95_step_ms=ddp_measured.figures.p95_step_s * 1e3)
    assert_verdict()
