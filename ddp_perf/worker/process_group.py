"""The process group of a launch, and the place of a rank on its GPU and cores."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, Placement, RankResult
from ddp_perf.errors import LaunchError
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.gpu.nvml import cores_near, keep_open, nvml_uuid
from ddp_perf.system.host.host import allowed_cores, cpu_name, host_name
from ddp_perf.system.host.network import interface_between_nodes, is_loopback
from ddp_perf.system.variables import nccl_settings
from ddp_perf.torch_compat import device_uuid, flight_recorder_variable
from ddp_perf.worker.emulation import EMULATED, register_emulation
from ddp_perf.worker.measure import measure
from ddp_perf.worker.rank_context import RankContext, RankStart
from ddp_perf.worker.steps.trainer import graph_stream

# The placement of a rank: on its own GPU and the cores near it, or on its own cores.


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


# The process group of a launch: a rank joins it, measures in it, and leaves it.


_RECORDED_COLLECTIVES = "2000"
_MOST_COMPILERS = 32  # processes, as Inductor by itself


def measure_in_group(request: LaunchRequest, start: RankStart) -> RankResult:
    """Measure the request's case on one rank, in a process group that exists only meanwhile.

    Collective.
    """
    case, rank = request.case, start.rank
    set_variables(case)
    device, placement = place(case, rank, start.local_rank, shared_gpu=request.shared_gpu)
    backend = EMULATED if register_emulation(request) else backend_of(request)
    dist.init_process_group(
        backend,
        store=start.store,
        rank=rank,
        world_size=case.world_size,
        device_id=device if "nccl" in backend else None,  # so that no barrier has to guess
    )
    context = RankContext(
        rank=rank,
        device=device,
        placement=placement,
        heartbeats=start.heartbeats,
        examination=start.examination,
    )
    with graph_stream(case, device):
        result = measure(request, context)
    # The model and optimizer of measure() are gone by now. A last reference to DDP that dies after
    # destroy_process_group would deadlock. There is no barrier after an error, since the other
    # ranks may be gone.
    if start.examination.meet(result):
        dist.destroy_process_group()
    return result


def set_variables(case: Case) -> None:
    """Set the variables that torch reads when it first uses CUDA, or makes a process group.

    Those that the user has set stay.
    """
    meeting = os.environ.get("MASTER_ADDR")  # a server sets it between nodes alone
    # What starts ranks may leave out how many nodes there are. torchrun states it.
    is_stated = os.environ.get("LOCAL_WORLD_SIZE") == str(case.world_size)
    if meeting is None or (case.nodes == 1 and (is_stated or is_loopback(meeting))):
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(name, "lo")  # one machine: never listen on a public address
    elif (interface := interface_between_nodes(meeting)) is not None:
        # Gloo would use the address of the host's own name, which is often 127.0.1.1. NCCL
        # chooses among all interfaces by itself.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if case.tier == "cpu":
        # torch's own hooks synchronise with any visible GPU, also over gloo. Hiding GPUs works
        # here because CUDA is not initialised: no process that starts ranks does it.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    else:
        # Inductor would start up to 32 compilers in each rank. They share the machine, and compete
        # with the rank's deadline for its first step.
        share = max(1, len(allowed_cores()) // case.run_per_node)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(min(_MOST_COMPILERS, share)))
    os.environ.setdefault(flight_recorder_variable(), _RECORDED_COLLECTIVES)


def let_nccl_report(request: LaunchRequest) -> None:
    """Let NCCL print its choice if the output is kept, unless the user chose what it prints."""
    case = request.case
    is_chosen = any("NCCL_DEBUG" in name for name in {**nccl_settings(os.environ), **os.environ})
    if request.output is not None and case.tier == "gpu" and case.run_ranks > 1 and not is_chosen:
        os.environ["NCCL_DEBUG"] = "INFO"


def backend_of(request: LaunchRequest) -> str:
    """Return the backend of the launch's process group, as torch names it."""
    case = request.case
    if case.tier == "cpu" or request.shared_gpu:  # NCCL refuses two ranks on one GPU
        return "gloo"
    # Shards in the host's memory are reduced there, which NCCL cannot do.
    offloads = case.training.fsdp is not None and case.training.fsdp.cpu_offload
    return "cpu:gloo,cuda:nccl" if offloads else "nccl"
