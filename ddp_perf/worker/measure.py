"""What one rank does: build, run the steps, look at what they did, and hand over all of it."""

from __future__ import annotations

import gc
import re
import resource
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_perf.core.launch_request import LaunchRequest
from ddp_perf.core.result import Placement, RankResult
from ddp_perf.system.rank_watch import RankWatch
from ddp_perf.torch_compat import numerics
from ddp_perf.worker.clock import ThreadTimer, step_clock
from ddp_perf.worker.collective import CollectiveSteps
from ddp_perf.worker.control import control_times_s
from ddp_perf.worker.graph import is_captured
from ddp_perf.worker.heartbeat import Heartbeats, Phase
from ddp_perf.worker.injection import Injected
from ddp_perf.worker.profile import profile_steps
from ddp_perf.worker.steps import Steps
from ddp_perf.worker.training import TrainingSteps
from ddp_perf.worker.warm_up import warm_up


def measure(
    request: LaunchRequest,
    rank: int,
    device: torch.device,
    placement: Placement,
    heartbeats: Heartbeats,
) -> RankResult:
    """Run the case as ``rank`` of an initialised process group, and return what was seen."""
    case = request.case
    control_s = control_times_s(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # the control's memory is not the case's
    injected = Injected(request.injections, rank, device)
    steps = _steps(request, rank, device, heartbeats, injected)
    on_gpu = case.tier == "gpu"
    with injected.beside():
        # A CPU's pace is steady after the suite's own warm-ups, and more would double its launches.
        extra_warmup = warm_up(steps, device) if on_gpu else None
        watch = RankWatch(
            placement.cores,
            pinned=not on_gpu,
            gpu=placement.device_id if on_gpu else None,
        )
        step_s, cpu_s = timed_steps(steps, case.schedule.steps, device)
        steps.enter(Phase.AFTER)
        watched = watch.watched()
        peak_memory = _peak_memory(device)  # before anything else can raise it
        facts = steps.facts()
    control_s += control_times_s(device)
    profile_steps(steps, request.profiling, rank, device)  # after everything that is timed
    warmup = case.schedule.warmup
    return RankResult(
        placement=placement,
        warmup_s=tuple(step_s[:warmup]),
        step_s=tuple(step_s[warmup:]),
        cpu_s=tuple(cpu_s[warmup:]),
        control_s=tuple(control_s),
        peak_memory=peak_memory,
        digest=facts.digest,
        structure=facts.structure,
        ddp_logging=facts.ddp_logging,
        flops=facts.flops,
        unit=facts.unit,
        conditions=watched.conditions,
        extra_warmup=extra_warmup,
        numerics=numerics() if on_gpu and case.trains else None,
        energy_j=watched.energy_j,
        probe=facts.probe,
    )


def _steps(
    request: LaunchRequest,
    rank: int,
    device: torch.device,
    heartbeats: Heartbeats,
    injected: Injected,
) -> Steps:
    """What the case repeats, ready for its first step."""
    case = request.case
    if case.collective is not None:
        return CollectiveSteps(case.collective, rank, device, heartbeats)
    training = TrainingSteps(
        injected.case(case), rank, device, heartbeats, probe_steps=request.probe_steps
    )
    injected.into(training)
    if is_captured(case, device):
        training.capture()
    return training


def timed_steps(steps: Steps, count: int, device: torch.device) -> tuple[list[float], list[float]]:
    """Seconds of each step by the device's clock, and of the host thread's CPU time.

    Nothing in the loop waits for the device: that would hide the overlap of computation
    and communication that DDP exists for.
    """
    clock, timer = step_clock(device, count), ThreadTimer()
    gc.collect()
    gc.disable()
    dist.barrier()
    steps.enter(Phase.TIMED)
    clock.mark()
    timer.mark()
    for _ in range(count):
        steps.step()
        clock.mark()
        timer.mark()
    gc.enable()
    steps.enter(Phase.FOLLOWED)
    return clock.intervals_s(steps.beat), timer.intervals_s()


def _peak_memory(device: torch.device) -> int:
    """Bytes: what the allocator held at most, or the peak resident set on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():
        match = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), flags=re.MULTILINE)
        if match:
            return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
