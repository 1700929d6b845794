"""Where a rank runs: its own GPU, or its own cores."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from ddp_perf.core.case import Case
from ddp_perf.core.result import Placement
from ddp_perf.system.host import allowed_cores, cpu_name
from ddp_perf.torch_compat import device_uuid


def place(case: Case, rank: int) -> tuple[torch.device, Placement]:
    """Put this process where ``rank`` belongs: rank r on cuda:r, or pinned to its cores."""
    if case.tier == "gpu":
        return _on_gpu(rank)
    return _on_cores(case, rank)


def _on_gpu(rank: int) -> tuple[torch.device, Placement]:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    return device, Placement(
        rank=rank,
        device=str(device),
        device_id=device_uuid(rank),
        device_name=torch.cuda.get_device_name(rank),
        cores=allowed_cores(),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _on_cores(case: Case, rank: int) -> tuple[torch.device, Placement]:
    threads = case.threads_per_rank
    cores = cores_of_rank(allowed_cores(), rank, threads)
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)
    return torch.device("cpu"), Placement(
        rank=rank,
        device="cpu",
        device_id="cores " + ",".join(map(str, cores)),
        device_name=cpu_name(),
        cores=cores,
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def cores_of_rank(cores: Sequence[int], rank: int, threads: int) -> tuple[int, ...]:
    """``threads`` neighbouring cores; shared, round and round, where there are too few."""
    first = rank * threads
    return tuple(sorted({cores[(first + i) % len(cores)] for i in range(threads)}))
