"""CPU time: a step must not take more of it, on the rank that takes most."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.perf


@pytest.mark.ddp_metric("cpu_time")
def test_cpu_time(ddp_measured, assert_verdict):
    """The metric is the CPU time of all threads: waits, and cores that others take, are no part."""
    assert_verdict()
