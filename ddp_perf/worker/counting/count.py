"""Counting a step on one rank that runs alone, on a CPU, for a case of any tier and world size."""

from __future__ import annotations

import contextlib
import resource

import msgspec
import torch
import torch.distributed as dist

from ddp_perf.core.case import Case, with_training
from ddp_perf.core.launch import Placement
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.system.host.control_group import memory_limit
from ddp_perf.torch_compat import (
    BaseTorchDispatchMode,
    captures_under_modes,
    compiles_by_itself,
    foreach_on_cpu,
)
from ddp_perf.worker.counting.compilation import CapturedDryRun, add_compilation
from ddp_perf.worker.counting.dry import DryRun
from ddp_perf.worker.counting.sites import note_makers, own_package
from ddp_perf.worker.counting.step_recorder import record_step
from ddp_perf.worker.lone_group import init_lone_group
from ddp_perf.worker.process_group import set_variables
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.report import Heartbeats
from ddp_perf.worker.steps.protocol import follow_plan
from ddp_perf.worker.steps.trainer import Losses, Trainer


class Computing(BaseTorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that changes nothing. Under it torch.compile skips frames, as under a dry run."""


def count_step(request: CountRequest, heartbeats: Heartbeats) -> StepWork:
    """Return the work of one settled step of the request's rank.

    Optimizers choose as on the case's tier. A data loader loads in the rank itself: its workers
    are other processes, whose work is none of the step's. The counted step is an eager one;
    graphs are captured in further steps.
    """
    case = _counted(request.case)
    set_variables(case)
    if request.compute:
        limit_memory()
    torch.set_num_threads(case.threads_per_rank)
    init_lone_group(request.rank, case.world_size)
    if ":" in request.case.workload:  # it is the user's
        own_package(request.case.workload.partition(":")[0])
    with (
        foreach_on_cpu() if request.case.tier == "gpu" else contextlib.nullcontext(),
        Computing() if request.compute else DryRun(),  # type: ignore[no-untyped-call]
    ):
        with note_makers() as makers:
            trainer = Trainer(case, lone_context(request.rank, heartbeats))
        trainer.losses = Losses(last=0)  # those that are kept in some steps are no part of them
        recording = record_step(trainer, makers=makers, import_paths=request.import_paths)
        work = follow_plan(recording, trainer.step)
        del trainer  # the last reference to DDP must not outlive the group
    if request.case.training.compile or compiles_by_itself():
        work = _with_compilation(work, request, heartbeats)
    dist.destroy_process_group()
    return msgspec.structs.replace(work, computed=request.compute)


def limit_memory() -> None:
    """Let an allocation fail that the machine has no memory for: the kernel would end processes."""
    limit = memory_limit()
    if limit is not None:
        resource.setrlimit(
            resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1])
        )


def _with_compilation(work: StepWork, request: CountRequest, heartbeats: Heartbeats) -> StepWork:
    """Return the work with what torch.compile captures of the first steps of another trainer."""
    case = with_training(_counted(request.case), compile=request.case.training.compile)
    computes = request.compute or not captures_under_modes()
    with contextlib.nullcontext() if computes else CapturedDryRun():
        trainer = Trainer(case, lone_context(request.rank, heartbeats))
        work = add_compilation(work, trainer.step, import_paths=request.import_paths)
        del trainer
    return work


def _counted(case: Case) -> Case:
    """Return the case as it is counted: eager, on a CPU."""
    data = case.training.data
    if data.num_workers is not None:
        data = msgspec.structs.replace(data, num_workers=0)
    eager = with_training(case, data=data, compile=False)
    return msgspec.structs.replace(eager, tier="cpu")


def lone_context(rank: int, heartbeats: Heartbeats) -> RankContext:
    """Return the context of a rank that is not pinned to any core."""
    placement = Placement(
        rank=rank,
        device="cpu",
        device_id="none",
        device_name="none",
        cores=(),
        cuda_visible_devices=None,
        host="none",
    )
    device = torch.device("cpu")
    return RankContext(rank=rank, device=device, placement=placement, heartbeats=heartbeats)
