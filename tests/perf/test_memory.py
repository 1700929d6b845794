"""Memory: the rank that needs most memory must not need more."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("peak_memory")
def test_peak_memory(ddp_measured, assert_verdict):
    """The metric is the allocator's peak on a GPU, and the peak resident set on a CPU."""
    assert_verdict()
