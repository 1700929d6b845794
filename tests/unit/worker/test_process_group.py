"""The backend of the ranks of a launch."""

from __future__ import annotations

import os

import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.core.strategy import FsdpOptions
from ddp_perf.worker import process_group
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


@pytest.mark.parametrize(
    ("tier", "cores", "ranks", "given", "compilers"),
    [
        ("gpu", 128, 8, {}, "16"),
        ("gpu", 128, 1, {}, "32"),  # as many as Inductor starts by itself
        ("gpu", 2, 8, {}, "1"),
        ("gpu", 128, 8, {"TORCHINDUCTOR_COMPILE_THREADS": "3"}, "3"),  # the user's
        ("cpu", 128, 8, {}, None),
    ],
)
def test_the_ranks_of_a_node_share_its_cores_for_compiling(
    monkeypatch, tier, cores, ranks, given, compilers
):
    environ = dict(given)
    monkeypatch.setattr(os, "environ", environ)
    monkeypatch.setattr(process_group, "allowed_cores", lambda: tuple(range(cores)))

    process_group.set_variables(make_case(tier=tier, world_size=ranks))

    assert environ.get("TORCHINDUCTOR_COMPILE_THREADS") == compilers
