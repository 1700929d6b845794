"""The measurement on one rank: build the steps, time them, examine them, return all figures."""

from __future__ import annotations

import gc
import re
import resource
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import torch

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchRequest, RankResult
from ddp_perf.system.gpu.nvml import read_load as read_gpu_load
from ddp_perf.system.host.network import group_interface
from ddp_perf.system.rank_watch import RankWatch
from ddp_perf.system.watch.utilisation_watch import UtilisationWatch
from ddp_perf.torch_compat import numerics
from ddp_perf.worker.examine import examine_training
from ddp_perf.worker.heartbeat import Phase
from ddp_perf.worker.injection.effects import Injected
from ddp_perf.worker.profile import profile_steps
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.collective import CollectiveSteps
from ddp_perf.worker.steps.graph import is_captured
from ddp_perf.worker.steps.plan import StepPlan, follow_plan
from ddp_perf.worker.steps.protocol import StepFacts, Steps
from ddp_perf.worker.steps.trainer import Trainer
from ddp_perf.worker.timing.control import control_times_s
from ddp_perf.worker.timing.pace import is_host_bound, waits_for_gpu
from ddp_perf.worker.timing.timed_steps import timed_on_gpu, timed_schedule
from ddp_perf.worker.timing.warm_up import warm_up


def measure(request: LaunchRequest, context: RankContext) -> RankResult:
    """Run the case on one rank of an initialised process group, and return all measurements."""
    control_s = control_before(context.device)
    injected = Injected(request.injections, context)
    steps, examination = _build_steps(request, context, injected)
    plan = measurement(request, context, steps, examination, injected, control_s)
    return follow_plan(plan, steps.step)


def control_before(device: torch.device) -> list[float]:
    """Return the times of the control, whose memory is not part of the later peak."""
    control_s = control_times_s(device)
    forget_peak_memory(device)
    return control_s


def forget_peak_memory(device: torch.device) -> None:
    """Begin a new peak on a GPU. That of a process on a CPU cannot be begun anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def measurement(
    request: LaunchRequest,
    context: RankContext,
    steps: Steps,
    examination: StepPlan[StepFacts],
    injected: Injected,
    control_s: Sequence[float],
    *,
    peak_before: int = 0,
    owes_steps: bool = False,
) -> StepPlan[RankResult]:
    """Measure the steps that the schedule asks for, and examine further ones.

    ``control_s`` are the times of the control before the training was built. ``peak_before`` is
    the peak before it was forgotten. ``owes_steps``: see ``timed_on_gpu``. Collective.
    """
    case, device, placement = request.case, context.device, context.placement
    on_gpu = case.tier == "gpu"
    with injected.run_beside():
        # Slow calls come before the warm-up: a GPU that idles after the warm-up runs faster.
        gc.collect()
        watch = RankWatch(
            placement.cores,
            pinned=not on_gpu,
            gpu=placement.device_id if on_gpu else None,
        )
        utilisation_watch = UtilisationWatch(
            gpu=placement.device_id if on_gpu else None,
            interface=group_interface(case) if context.rank == 0 else None,
            reads_rdma=context.rank == 0 and case.nodes > 1,
        )
        # A CPU's step time is steady after the suite's own warm-ups. More would double a launch.
        read_load = partial(read_gpu_load, placement.device_id)
        extra_warmup = (yield from warm_up(steps, device, read_load)) if on_gpu else None
        watch.begin()
        utilisation_watch.begin()
        if extra_warmup is None:
            timed = yield from timed_schedule(steps, case.schedule, device)
        else:
            timed = yield from timed_on_gpu(
                steps,
                case.schedule,
                device,
                after=extra_warmup,
                read_load=read_load,
                owes_steps=owes_steps,
            )
        steps.enter(Phase.AFTER)
        utilisation = utilisation_watch.used()
        watched = watch.watched(timed.load)
        # Read before anything else can raise it.
        peak_memory = max(peak_before, peak_memory_of(device))
        guard = context.examination
        control_after = guard.alone("control", lambda: control_times_s(device)) or ()
        result = RankResult(
            placement=placement,
            warmup_s=timed.warmup_s,
            step_s=timed.step_s,
            loops=timed.loops,
            cpu_s=timed.cpu_s,
            waited_s=timed.waited_s,
            control_s=(*control_s, *control_after),
            peak_memory=peak_memory,
            digest=None,
            structure=None,
            ddp_logging={},
            unit=steps.unit,
            conditions=watched.conditions,
            extra_warmup=extra_warmup,
            slowdown=injected.slowdown,
            numerics=numerics() if on_gpu and case.trains else None,
            energy_j=watched.energy_j,
            load=timed.load,
            utilisation=utilisation,
        )
        guard.deliver(result)  # whatever fails from here on, the times are kept
        # The profiled steps are the same as the timed ones.
        yield from guard.together("profile", profile_steps(steps, request.profiling, context))
        facts = yield from examination
    return msgspec.structs.replace(
        result,
        digest=facts.digest,
        structure=facts.structure,
        ddp_logging=facts.ddp_logging,
        flops=facts.flops,
        flops_by_format=facts.flops_by_format,
        losses=facts.losses,
        loss_unit=facts.loss_unit,
        one_batch=facts.one_batch,
        host_bound=_is_host_bound(
            case,
            timed.lead_s,
            timed.step_s,
            waits="probe" in guard.missing or waits_for_gpu(case, facts.probe),
        ),
        probe=facts.probe,
        script=facts.script,
        missing=guard.missing,
    )


def _build_steps(
    request: LaunchRequest, context: RankContext, injected: Injected
) -> tuple[CollectiveSteps | Trainer, StepPlan[StepFacts]]:
    """Build the steps of the case, and the examination that follows the timed ones."""
    if request.case.collective is not None:
        calls = CollectiveSteps(request.case.collective, context)
        return calls, calls.examine()
    case = injected.change_case(request.case)
    # How far the losses of every second launch are off shows what rounding does to this workload.
    trainer = Trainer(case, context, nudged=request.round % 2 == 1)
    injected.apply_to(trainer)
    if is_captured(case, context.device):
        trainer.capture()
    return trainer, examine_training(case, trainer, context, probe_steps=request.probe_steps)


def _is_host_bound(
    case: Case, lead_s: float, step_s: Sequence[float], *, waits: bool
) -> bool | None:
    """Return whether the host sets the pace of a case that trains on GPUs, or None if unclear.

    ``waits``: the host waits for the GPU in each step, or it is unknown whether it does.
    """
    if case.tier != "gpu" or not case.trains:
        return None
    return is_host_bound(lead_s, statistics.median(step_s), waits=waits)


def peak_memory_of(device: torch.device) -> int:
    """Return the largest allocated memory of a GPU, or the peak resident set on a CPU, in bytes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():
        match = re.search(
            r"^VmHWM:\s+(\d+) kB$",
            status.read_text(encoding="utf-8", errors="replace"),
            flags=re.MULTILINE,
        )
        if match:
            return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
