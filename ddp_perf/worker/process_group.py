"""The process group of a launch: a rank joins it, measures in it, and leaves it."""

from __future__ import annotations

import os

import torch.distributed as dist
from torch.distributed import Store

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, RankResult
from ddp_perf.system.host.host import allowed_cores
from ddp_perf.system.host.network import interface_between_nodes, is_loopback
from ddp_perf.system.variables import nccl_settings
from ddp_perf.torch_compat import flight_recorder_variable
from ddp_perf.worker.examination import Examination
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.measure import measure
from ddp_perf.worker.placement import place
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.graph import graph_stream

_RECORDED_COLLECTIVES = "2000"
_MOST_COMPILERS = 32  # processes, as Inductor by itself


def measure_in_group(
    request: LaunchRequest,
    *,
    rank: int,
    local_rank: int,
    heartbeats: Heartbeats,
    store: Store | None,
    examination: Examination,
) -> RankResult:
    """Measure the request's case on one rank, in a process group that exists only meanwhile.

    ``local_rank`` is the rank within its node, and chooses its GPU or cores. The ranks find each
    other through ``store``; None: through that of the environment, which torchrun sets. Collective.
    """
    case = request.case
    set_variables(case)
    device, placement = place(case, rank, local_rank, shared_gpu=request.shared_gpu)
    backend = backend_of(request)
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=case.world_size,
        device_id=device if "nccl" in backend else None,  # so that no barrier has to guess
    )
    context = RankContext(
        rank=rank,
        device=device,
        placement=placement,
        heartbeats=heartbeats,
        examination=examination,
    )
    with graph_stream(case, device):
        result = measure(request, context)
    # The model and optimizer of measure() are gone by now. A last reference to DDP that dies after
    # destroy_process_group would deadlock. There is no barrier after an error, since the other
    # ranks may be gone.
    if examination.meet(result):
        dist.destroy_process_group()
    return result


def set_variables(case: Case) -> None:
    """Set the variables that torch reads when it first uses CUDA, or makes a process group.

    Those that the user has set stay.
    """
    meeting = os.environ.get("MASTER_ADDR")  # forked ranks have none, and are on one machine
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
        share = max(1, len(allowed_cores()) // case.ranks_per_node)
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(min(_MOST_COMPILERS, share)))
    os.environ.setdefault(flight_recorder_variable(), _RECORDED_COLLECTIVES)


def let_nccl_report(request: LaunchRequest) -> None:
    """Let NCCL print its choice if the output is kept, unless the user chose what it prints."""
    case = request.case
    is_chosen = any("NCCL_DEBUG" in name for name in {**nccl_settings(os.environ), **os.environ})
    if request.output is not None and case.tier == "gpu" and case.world_size > 1 and not is_chosen:
        os.environ["NCCL_DEBUG"] = "INFO"


def backend_of(request: LaunchRequest) -> str:
    """Return the backend of the launch's process group, as torch names it."""
    case = request.case
    if case.tier == "cpu" or request.shared_gpu:  # NCCL refuses two ranks on one GPU
        return "gloo"
    # Shards in the host's memory are reduced there, which NCCL cannot do.
    offloads = case.fsdp is not None and case.fsdp.cpu_offload
    return "cpu:gloo,cuda:nccl" if offloads else "nccl"
