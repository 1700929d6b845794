"""Energy: a sample must not take more joules, over the GPUs of all ranks."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("energy")
def test_energy(ddp_measured, assert_verdict):
    """NVML's counter, over warm-ups and measured steps; gated where a suite says so."""
    assert_verdict("energy")
