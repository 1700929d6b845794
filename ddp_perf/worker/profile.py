"""Further steps under torch.profiler, exported as one Chrome trace for each rank."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from ddp_perf.core.launch import Profiling
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import Steps


def profile_steps(
    steps: Steps, profiling: Profiling | None, context: RankContext
) -> StepPlan[None]:
    """Write a trace of further steps, if the request has a profiling.

    Call it after the timed steps, since the profiler slows a step down, and before a CUDA graph
    is released, since later steps differ from the timed ones. One more step comes first and takes
    the profiler's start-up. Shapes are recorded because over gloo nothing else in a trace shows
    how many bytes a collective moves.
    """
    if profiling is None:
        return
    activities = [ProfilerActivity.CPU]
    on_gpu = context.device.type == "cuda"
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=0, warmup=1, active=profiling.steps, repeat=1)
    dist.barrier()
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for left in reversed(range(1 + profiling.steps)):
            yield
            if left == 0 and on_gpu:
                torch.cuda.synchronize(context.device)  # or the last kernels would be cut off
            profiler.step()
    path = Path(profiling.file(context.rank))
    context.examination.alone("profile", lambda: _export(profiler, path))
    steps.beat()


def _export(profiler: profile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))
