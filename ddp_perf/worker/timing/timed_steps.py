"""The timed steps of a launch, and further ones on a busy CPU until enough are undisturbed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

from ddp_perf.core.case import Schedule
from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import WarmUp, waited_long
from ddp_perf.worker.heartbeat import Phase
from ddp_perf.worker.steps.plan import StepPlan, StepsEndedError
from ddp_perf.worker.steps.protocol import Steps
from ddp_perf.worker.timing.clock import read_followed, step_clock
from ddp_perf.worker.timing.pace import gained_lead_s
from ddp_perf.worker.timing.witness import NoWitness, StepWitness

_MOST_TIMES = 5  # a launch on a busy CPU has at most so many times the steps of its suite


class Timed(NamedTuple):
    """The times of the timed steps, in seconds."""

    step_s: tuple[float, ...]  # of each step, by the device's clock
    cpu_s: tuple[float, ...]  # of each step: CPU time of all threads
    waited_s: tuple[float, ...]  # of each step: wait for a core; empty: unknown
    lead_s: float = 0.0  # by which the host got ahead of its GPU
    load: GpuLoad | None = None  # of the GPU while it ran the last steps
    warmup_s: tuple[float, ...] = ()  # of each step before them
    loops: tuple[int, ...] = ()  # number of steps of each loop, if there are several

    def without(self, warmup: int) -> Timed:
        """Return the times without the first steps, which are warm-ups."""
        return self._replace(
            step_s=self.step_s[warmup:],
            cpu_s=self.cpu_s[warmup:],
            waited_s=self.waited_s[warmup:],
            warmup_s=self.step_s[:warmup],
        )

    def followed_by(self, later: Timed) -> Timed:
        """Return the times of these steps and of the later ones."""
        return self._replace(
            step_s=self.step_s + later.step_s,
            cpu_s=self.cpu_s + later.cpu_s,
            waited_s=self.waited_s + later.waited_s,
            loops=(*(self.loops or (len(self.step_s),)), len(later.step_s)),
        )


def timed_on_gpu(
    steps: Steps,
    schedule: Schedule,
    device: torch.device,
    *,
    after: WarmUp,
    read_load: Callable[[], GpuLoad],
    owes_steps: bool = False,
) -> StepPlan[Timed]:
    """Run the last warm-ups and the timed steps of a launch on GPUs, and time them in one loop.

    Their number follows from the step ``after`` the extra warm-up, which is the same on all ranks:
    between two loops a GPU would run idle. A script that is over before has fewer steps, but not
    fewer than the schedule. With ``owes_steps`` it has to have further ones after them, so that no
    more than those of the schedule are taken.
    """
    for _ in range(after.again):
        yield
    count = schedule.steps
    if not owes_steps:
        count = schedule.steps_on_gpu(after.step_s)
    timed = yield from timed_steps(steps, count, device, least=schedule.steps, read_load=read_load)
    return timed.without(schedule.warmup)


def timed_schedule(steps: Steps, schedule: Schedule, device: torch.device) -> StepPlan[Timed]:
    """Run the warm-ups and the timed steps of a schedule on CPUs, and time them.

    As many steps follow again and again until enough are clean on all ranks, or the most are done,
    or the training is over: a busy machine costs time, not verdicts. All ranks decide by the same
    steps.
    """
    timed = (yield from timed_steps(steps, schedule.steps, device)).without(schedule.warmup)
    while len(timed.step_s) < _MOST_TIMES * schedule.measured:
        steps.enter(Phase.AFTER)  # a rank that hangs here is in no step
        if _clean_steps(timed) >= schedule.enough_clean:
            break
        try:
            timed = timed.followed_by((yield from timed_steps(steps, schedule.measured, device)))
        except StepsEndedError:
            break
    return timed


def timed_steps(
    steps: Steps,
    count: int,
    device: torch.device,
    *,
    least: int | None = None,
    read_load: Callable[[], GpuLoad] = GpuLoad,
) -> StepPlan[Timed]:
    """Run and time ``count`` steps; at least ``least`` if the training is over before.

    Nothing in the loop waits for the device: a wait would hide the overlap of computation and
    communication, which is what DDP is for. The load is read after it, while the GPU still runs
    what was queued.
    """
    clock = step_clock(device, count)
    # Of several threads that compute, one that is not read may be what a step waits for.
    is_alone = torch.get_num_threads() == 1
    witness = StepWitness(waits=is_alone) if device.type == "cpu" else NoWitness()
    pauses = gc.isenabled() and not steps.collects_garbage
    if pauses:
        gc.disable()
    try:
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # gloo's barrier, and that of one rank, is the host's
        steps.enter(Phase.TIMED)
        clock.mark()
        witness.mark()
        for done in range(count):
            try:
                yield
            except StepsEndedError:
                if done < (count if least is None else least):
                    raise
                break
            clock.mark()
            witness.mark()
        steps.enter(Phase.FOLLOWED)
        load = read_followed(clock, read_load)
        step_s = clock.intervals_s(steps.beat)
    finally:  # the training may be over before
        if pauses:
            gc.enable()
        witness.close()
    return Timed(
        tuple(step_s),
        tuple(witness.cpu_s()),
        tuple(witness.waited_s()),
        lead_s=gained_lead_s(step_s, clock.leads_s()),
        load=load,
    )


def _clean_steps(timed: Timed) -> int:
    """Return the number of steps in which no rank waited long for a core. Collective."""
    waited = waited_long(timed.step_s, timed.waited_s) or [False] * len(timed.step_s)
    disturbed = torch.tensor(waited, dtype=torch.uint8)
    dist.all_reduce(disturbed, dist.ReduceOp.MAX)
    return len(waited) - int(disturbed.sum())
