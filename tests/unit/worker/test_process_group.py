"""The backend of the ranks of a launch."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.strategy import FsdpOptions
from ddp_perf.worker.process_group import backend_of
from tests.builders import make_case


@pytest.mark.parametrize(
    ("case", "shared_gpu", "backend"),
    [
        ({"tier": "cpu"}, False, "gloo"),
        ({"tier": "gpu"}, False, "nccl"),
        ({"tier": "gpu", "fsdp": FsdpOptions(cpu_offload=True)}, False, "cpu:gloo,cuda:nccl"),
        ({"tier": "gpu"}, True, "gloo"),
    ],
    ids=["CPUs", "GPUs", "shards in the host's memory", "one GPU for all"],
)
def test_ranks_use_nccl_if_each_has_its_own_gpu(case, shared_gpu, backend):
    request = LaunchRequest(case=make_case(**case), round=0, shared_gpu=shared_gpu)

    assert backend_of(request) == backend
