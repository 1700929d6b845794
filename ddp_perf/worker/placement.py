"""The placement of a rank: on its own GPU and the cores near it, or on its own cores."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Placement
from ddp_perf.errors import LaunchError
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.gpu.nvml import cores_near, keep_open, nvml_uuid
from ddp_perf.system.host.host import allowed_cores, cpu_name, host_name
from ddp_perf.torch_compat import device_uuid


def place(
    case: Case, rank: int, local_rank: int, *, shared_gpu: bool = False
) -> tuple[torch.device, Placement]:
    """Place this process: local rank r on cuda:r, or pinned to its cores on a CPU.

    If the launch shares a GPU, every rank is placed on cuda:0. On either tier the rank gets the
    number of threads that its case states: one, as from torchrun, unless the suite sets
    OMP_NUM_THREADS. torch's own default is one thread for each core of the machine, in each rank.
    Raises LaunchError if there is no GPU for the rank.
    """
    torch.set_num_threads(case.threads_per_rank)
    if case.tier == "gpu":
        return _on_gpu(case, rank, index=0 if shared_gpu else local_rank)
    return _on_cores(case, rank, local_rank)


def _on_gpu(case: Case, rank: int, index: int) -> tuple[torch.device, Placement]:
    keep_open()  # otherwise each later reading would initialise NVML, and the GPU would idle
    check_devices(index, torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    # Before autograd and NCCL start their threads, which inherit the affinity.
    os.sched_setaffinity(0, cores_beside(cores_near(_uuid(device)), allowed_cores()))
    return device, placement_on(device, case, rank)


def place_script(
    case: Case, rank: int, local_rank: int, *, shared_gpu: bool = False
) -> tuple[torch.device, Placement] | None:
    """Place this process for a script, which chooses its GPU itself: then return None.

    CUDA is left alone, since a script may set the variables that CUDA reads at its first use. The
    cores are those near the GPU that the local rank has by NVML. Raises LaunchError as ``place``.
    """
    if case.tier != "gpu":
        return place(case, rank, local_rank)
    torch.set_num_threads(case.threads_per_rank)
    keep_open()
    index = 0 if shared_gpu else local_rank
    gpus = find_gpus().gpus
    check_devices(index, len(gpus), os.environ.get("CUDA_VISIBLE_DEVICES"))
    os.sched_setaffinity(0, cores_beside(gpus[index].cores, allowed_cores()))
    return None


def placement_on(device: torch.device, case: Case, rank: int) -> Placement:
    """Return the placement of this process on a GPU that it uses."""
    return Placement(
        rank=rank,
        device=str(device),
        device_id=_uuid(device),
        device_name=torch.cuda.get_device_name(device.index),
        cores=allowed_cores(),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        node=rank // case.ranks_per_node,
        host=host_name(),
    )


def _uuid(device: torch.device) -> str:
    return nvml_uuid(device_uuid(device.index), os.environ.get("CUDA_VISIBLE_DEVICES"))


def check_devices(rank: int, count: int, mask: str | None) -> None:
    """Check that the rank has a GPU of its own. Raises LaunchError if it would share one."""
    if rank >= count:
        sees = f"{count} GPU{'s' if count != 1 else ''}"
        why = f" under CUDA_VISIBLE_DEVICES={mask}" if mask is not None else ""
        raise LaunchError(
            f"rank {rank} needs cuda:{rank}, but torch sees {sees}{why}; make one GPU visible for"
            " each rank, or start fewer ranks"
        )


def cores_beside(near: Sequence[int], allowed: Sequence[int]) -> tuple[int, ...]:
    """Return the allowed cores that are near a GPU, or all allowed cores if none is near."""
    return tuple(core for core in allowed if core in near) or tuple(allowed)


def _on_cores(case: Case, rank: int, local_rank: int) -> tuple[torch.device, Placement]:
    threads = case.threads_per_rank
    cores = cores_of_rank(allowed_cores(), local_rank, threads)
    os.sched_setaffinity(0, cores)
    return torch.device("cpu"), Placement(
        rank=rank,
        device="cpu",
        device_id="cores " + ",".join(map(str, cores)),
        device_name=cpu_name(),
        cores=cores,
        cuda_visible_devices=None,  # it sees no GPU
        node=rank // case.ranks_per_node,
        host=host_name(),
    )


def cores_of_rank(cores: Sequence[int], rank: int, threads: int) -> tuple[int, ...]:
    """Return ``threads`` neighbouring cores; ranks share cores in turn if there are too few."""
    first = rank * threads
    return tuple(sorted({cores[(first + i) % len(cores)] for i in range(threads)}))
