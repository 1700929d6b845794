"""Energy: a sample must not take more joules, over the GPUs of all ranks."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("energy")
def test_energy(ddp_measured, assert_verdict):
    """NVML's counter covers warm-ups and measured steps. Only suites with a tolerance gate it."""
    assert_verdict()
