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
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import LaunchRequest, Profiling, RankResult
from ddp_perf.system.gpu.nvml import read_load as read_gpu_load
from ddp_perf.system.host.network import group_interface
from ddp_perf.telemetry.conditions import conditions
from ddp_perf.telemetry.sample import Sampler
from ddp_perf.telemetry.utilisation import energy_j, utilisation
from ddp_perf.torch_compat import numerics
from ddp_perf.worker.counting.structure import (
    SETTLED_AFTER,
    StepCounts,
    count_structure,
    ddp_logging,
    parameter_digest,
)
from ddp_perf.worker.injection.effects import Injected
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.report import Phase
from ddp_perf.worker.step_probe import drain_loaders, probe
from ddp_perf.worker.steps.collective import CollectiveSteps
from ddp_perf.worker.steps.protocol import StepFacts, StepPlan, Steps, follow_plan
from ddp_perf.worker.steps.trainer import Trainer, is_captured
from ddp_perf.worker.timing.clock import (
    NO_STRUCTURE,
    all_agree,
    control_times_s,
    is_host_bound,
    waits_for_gpu,
)
from ddp_perf.worker.timing.timed_steps import timed_on_gpu, timed_schedule, warm_up

# The examination of a trainer after its timed steps: counts of one step, and the probe.


def examine_training(
    case: Case, trainer: Trainer, context: RankContext, *, probe_steps: int
) -> StepPlan[StepFacts]:
    """Read what is known, count one more step, then probe ``probe_steps`` further ones. Collective.

    What needs no further step comes first, since such a step may fail: it runs uncompiled, for
    example, and needs more memory than the timed ones. A captured step is not probed: a graph runs
    as a whole, and the time of an eager step is not spent where the time of the captured one is.
    """
    examination = context.examination
    trainer.release()  # nothing but the graph itself sees what it replays
    digest = yield from examination.together("digest", _digest(trainer))
    logging = examination.alone("ddp_logging", lambda: ddp_logging(trainer.module))
    losses = examination.alone("losses", trainer.losses.read)
    counts = yield from examination.together("structure", _counts(trainer, context))
    probed = None
    if not is_captured(case, context.device):
        # After all the others: it times DDP's steps by itself, and lets parameters differ by rank.
        probing = _probed(case, trainer, counts, context, probe_steps)
        probed = yield from examination.together("probe", probing)
    return StepFacts(
        digest=digest,
        structure=counts.structure if counts is not None else None,
        ddp_logging=logging or {},
        probe=probed,
        flops=counts.flops if counts is not None else None,
        flops_by_format=counts.flops_by_format if counts is not None else {},
        losses=losses or {},
        loss_unit=trainer.loss_unit,
        one_batch=trainer.one_batch,
    )


def _digest(trainer: Trainer) -> StepPlan[int]:
    yield from trainer.synchronise()
    return parameter_digest(trainer.module)


def _counts(trainer: Trainer, context: RankContext) -> StepPlan[StepCounts | None]:
    yield from trainer.settle(SETTLED_AFTER)
    return (yield from count_structure(trainer.module, context.examination))


def _probed(
    case: Case,
    trainer: Trainer,
    counts: StepCounts | None,
    context: RankContext,
    steps: int,
) -> StepPlan[RankProbe | None]:
    if not all_agree(counts is not None, context.device) or counts is None:
        context.examination.missing.setdefault("probe", NO_STRUCTURE)
        return None
    yield from drain_loaders(case)
    return (yield from probe(case, trainer, counts.structure, context.device, steps))


# Further steps under torch.profiler, exported as one Chrome trace for each rank.


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


# The measurement on one rank: build the steps, time them, examine them, return all figures.


def measure(request: LaunchRequest, context: RankContext) -> RankResult:
    """Run the case on one rank of an initialised process group, and return all measurements."""
    control_s = control_before(context.device)
    injected = Injected(request.injections, context)
    steps, examination = _build_steps(request, context, injected)
    prepared = Prepared(injected=injected, control_s=control_s)
    plan = measurement(request, context, steps, examination, prepared)
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


def _of_all_ranks(joules: float | None, case: Case) -> float | None:
    """Return the energy as if each rank that an emulated one stands for took as much."""
    return None if joules is None else joules * case.world_size / case.run_ranks


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The preparation of the steps that are measured."""

    injected: Injected
    control_s: Sequence[float]  # times of the control before the training was built
    peak: int = 0  # bytes: the peak before it was forgotten
    owes_steps: bool = False  # see ``timed_on_gpu``


def measurement(
    request: LaunchRequest,
    context: RankContext,
    steps: Steps,
    examination: StepPlan[StepFacts],
    before: Prepared,
) -> StepPlan[RankResult]:
    """Measure the steps that the schedule asks for, and examine further ones. Collective."""
    case, device, placement = request.case, context.device, context.placement
    on_gpu = case.tier == "gpu"
    with before.injected.run_beside():
        # Slow calls come before the warm-up: a GPU that idles after the warm-up runs faster.
        gc.collect()
        sampler = Sampler(
            placement.cores,
            pinned=not on_gpu,
            gpu=placement.device_id if on_gpu else None,
            interface=group_interface(case) if context.rank == 0 else None,
            reads_rdma=context.rank == 0 and case.nodes > 1,
        )
        # A CPU's step time is steady after the suite's own warm-ups. More would double a launch.
        read_load = partial(read_gpu_load, placement.device_id)
        extra_warmup = (yield from warm_up(steps, device, read_load)) if on_gpu else None
        first = sampler.read()
        if extra_warmup is None:
            timed = yield from timed_schedule(steps, case.schedule, device)
        else:
            timed = yield from timed_on_gpu(
                steps,
                case.schedule,
                device,
                after=extra_warmup,
                read_load=read_load,
                owes_steps=before.owes_steps,
            )
        steps.enter(Phase.AFTER)
        last = sampler.read_after(first)
        # Read before anything else can raise it.
        peak_memory = max(before.peak, peak_memory_of(device))
        guard = context.examination
        control_after = guard.alone("control", lambda: control_times_s(device)) or ()
        result = RankResult(
            placement=placement,
            warmup_s=timed.warmup_s,
            step_s=timed.step_s,
            loops=timed.loops,
            cpu_s=timed.cpu_s,
            waited_s=timed.waited_s,
            control_s=(*before.control_s, *control_after),
            peak_memory=peak_memory,
            digest=None,
            structure=None,
            ddp_logging={},
            unit=steps.unit,
            conditions=conditions(first, last, pinned=not on_gpu, load=timed.load),
            extra_warmup=extra_warmup,
            slowdown=before.injected.slowdown,
            numerics=numerics() if on_gpu and case.trains else None,
            energy_j=_of_all_ranks(energy_j(first, last), case),
            load=timed.load,
            utilisation=utilisation(first, last),
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
