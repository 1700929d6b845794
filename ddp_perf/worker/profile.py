"""Some more steps under torch.profiler: a Chrome trace of each rank."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from ddp_perf.core.launch import Profiling
from ddp_perf.worker.steps.protocol import Steps


def profile_steps(
    steps: Steps, profiling: Profiling | None, rank: int, device: torch.device
) -> None:
    """Export a trace of so many steps, if one is wanted. After the timed ones: it slows them
    down; and before a CUDA graph is let go, for later steps are others.

    One step before them takes the profiler's own start-up. Shapes are recorded: over gloo they
    alone tell how many bytes a collective moves.
    """
    if profiling is None:
        return
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=0, warmup=1, active=profiling.steps, repeat=1)
    dist.barrier()
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for left in reversed(range(1 + profiling.steps)):
            steps.step()
            if left == 0 and device.type == "cuda":
                torch.cuda.synchronize(device)  # or the last kernels would be cut off
            profiler.step()
    path = Path(profiling.file(rank))
    path.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(path))
    steps.beat()
