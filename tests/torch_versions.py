"""What a version of torch lacks: the tests that need it are skipped."""

from __future__ import annotations

import pytest

from ddp_perf.core.case import Case
from ddp_perf.torch_compat import shards_on_cpu

GPU_SHARDS_ONLY = "FSDP2 of this torch needs a GPU"
needs_cpu_shards = pytest.mark.skipif(not shards_on_cpu(), reason=GPU_SHARDS_ONLY)


def skip_if_shards_need_a_gpu(case: Case) -> None:
    """Skip a test that trains or counts the case on a CPU."""
    if case.strategy == "fsdp" and not shards_on_cpu():
        pytest.skip(GPU_SHARDS_ONLY)
