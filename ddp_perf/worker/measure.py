"""What one rank does: build, wrap, run the steps, count, and hand over what it measured."""

from __future__ import annotations

import gc
import math
import re
import resource
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from ddp_perf.core.case import Case
from ddp_perf.core.injection import Injection
from ddp_perf.core.profiling import Profiling
from ddp_perf.core.result import Placement, RankResult
from ddp_perf.system.rank_watch import RankWatch
from ddp_perf.torch_compat import numerics
from ddp_perf.worker.clock import ThreadTimer, step_clock
from ddp_perf.worker.control import control_times_s
from ddp_perf.worker.flops import FlopCounter
from ddp_perf.worker.graph import is_captured
from ddp_perf.worker.heartbeat import Heartbeats
from ddp_perf.worker.injection import Injected
from ddp_perf.worker.probe import probe
from ddp_perf.worker.profile import profile_steps
from ddp_perf.worker.structure import SETTLED_AFTER, count_structure, ddp_logging
from ddp_perf.worker.trainer import Trainer
from ddp_perf.worker.warm_up import warm_up


def measure(
    case: Case,
    rank: int,
    device: torch.device,
    placement: Placement,
    heartbeats: Heartbeats,
    injections: Sequence[Injection],
    probe_steps: int,
    profiling: Profiling | None,
) -> RankResult:
    """Run ``case`` as ``rank`` of an initialised process group, and return what was seen."""
    control_s = control_times_s(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # the control's memory is not the case's
    injected = Injected(injections, rank, device)
    trainer = Trainer(injected.case(case), rank, device, heartbeats)
    injected.into(trainer)
    on_gpu = case.tier == "gpu"
    if is_captured(case, device):
        trainer.capture()
    with injected.beside():
        # A CPU's pace is steady after the suite's own warm-ups, and more would double its launches.
        extra_warmup = warm_up(trainer, device) if on_gpu else None
        watch = RankWatch(
            placement.cores,
            pinned=not on_gpu,
            gpu=placement.device_id if on_gpu else None,
        )
        step_s, cpu_s = timed_steps(trainer, case.schedule.steps, device)
        watched = watch.watched()
        peak_memory = _peak_memory(device)  # before anything else can raise it
        trainer.release()  # what a graph replays, nothing else sees
        trainer.settle(SETTLED_AFTER)
        with FlopCounter() as counter:
            structure = count_structure(trainer.module, trainer.step)  # the ranks are in step
        digest = parameter_digest(trainer.module)
        probed = None  # a replayed step is one whole, and an eager one is not where its time goes
        if not is_captured(case, device):
            probed = probe(case, trainer, structure.collectives, device, probe_steps)
    control_s += control_times_s(device)
    profile_steps(trainer, profiling, rank, device)  # after everything that is timed
    warmup = case.schedule.warmup
    return RankResult(
        placement=placement,
        warmup_s=tuple(step_s[:warmup]),
        step_s=tuple(step_s[warmup:]),
        cpu_s=tuple(cpu_s[warmup:]),
        control_s=tuple(control_s),
        peak_memory=peak_memory,
        digest=digest,
        structure=structure,
        ddp_logging=_finite(ddp_logging(trainer.module)),
        flops=counter.flops,
        unit=trainer.unit,
        conditions=watched.conditions,
        extra_warmup=extra_warmup,
        numerics=numerics() if on_gpu else None,
        energy_j=watched.energy_j,
        probe=probed,
    )


def timed_steps(
    trainer: Trainer, steps: int, device: torch.device
) -> tuple[list[float], list[float]]:
    """Seconds of each step by the device's clock, and of the host thread's CPU time.

    Nothing in the loop waits for the device: that would hide the overlap of computation
    and communication that DDP exists for.
    """
    clock, timer = step_clock(device, steps), ThreadTimer()
    gc.collect()
    gc.disable()
    dist.barrier()
    clock.mark()
    timer.mark()
    for _ in range(steps):
        trainer.step()
        clock.mark()
        timer.mark()
    gc.enable()
    return clock.intervals_s(trainer.beat), timer.intervals_s()


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


def parameter_digest(module: nn.Module) -> int:
    """A checksum of all parameters, bit by bit: equal on ranks that hold the same model.

    Collective where they are sharded: each is put together, one at a time.
    """
    digest = 0
    for parameter in module.parameters():
        data = parameter.detach()
        if isinstance(data, DTensor):
            data = data.full_tensor()
        data = data.cpu().contiguous().flatten().view(torch.uint8)
        digest = zlib.crc32(data.numpy().data, digest)
    return digest


def _finite(data: dict[str, Any]) -> dict[str, int | float | str]:
    """Without what JSON cannot hold."""
    return {
        name: value
        for name, value in data.items()
        if isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    }
