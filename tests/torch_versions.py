"""What a version of torch lacks: the tests that need it are skipped."""

from __future__ import annotations

import pytest
import torch

from ddp_perf.core.case import Case
from ddp_perf.torch_compat import shards_on_cpu

GPU_SHARDS_ONLY = "FSDP2 of this torch needs a GPU"
needs_cpu_shards = pytest.mark.skipif(not shards_on_cpu(), reason=GPU_SHARDS_ONLY)

# Without records of its own, what another thread issues may be missed, as PowerSGD's hook does.
needs_records_over_gloo = pytest.mark.skipif(
    torch.__version__ < "2.8", reason="this torch records none over gloo"
)


def skip_if_shards_need_a_gpu(case: Case) -> None:
    """Skip a test that trains or counts the case on a CPU."""
    if case.strategy == "fsdp" and not shards_on_cpu():
        pytest.skip(GPU_SHARDS_ONLY)
