"""Memory: the rank that needs most must not need more."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("peak_memory")
def test_peak_memory(ddp_measured, assert_verdict):
    """The allocator's peak on a GPU, the peak resident set on a CPU."""
    assert_verdict("peak_memory")
