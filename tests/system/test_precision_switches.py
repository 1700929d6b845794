"""A workload may use torch's newer switches of precision."""

from __future__ import annotations

import pytest
import torch

from ddp_perf.core.launch import LaunchResult


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"),
    reason="torch before 2.9 has only the older switches",
)
def test_a_workload_that_uses_the_newer_switches_is_measured(launcher, request_of):
    result = launcher.launch(request_of("newer_switches:build", {}))

    assert isinstance(result, LaunchResult), str(result)
