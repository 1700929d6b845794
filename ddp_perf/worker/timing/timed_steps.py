"""The timed steps of a launch, and further ones on a busy CPU until enough are undisturbed."""

from __future__ import annotations

import gc
import time
from typing import NamedTuple

import torch
import torch.distributed as dist

from ddp_perf.core.case import Schedule
from ddp_perf.core.launch import waited_long
from ddp_perf.worker.heartbeat import Phase
from ddp_perf.worker.steps.plan import StepPlan, StepsEndedError
from ddp_perf.worker.steps.protocol import Steps
from ddp_perf.worker.timing.clock import step_clock
from ddp_perf.worker.timing.witness import NoWitness, StepWitness

_MOST_TIMES = 5  # a launch on a busy CPU has at most so many times the steps of its suite


class Timed(NamedTuple):
    """The times of the timed steps, in seconds."""

    step_s: tuple[float, ...]  # of each step, by the device's clock
    cpu_s: tuple[float, ...]  # of each step: CPU time of all threads
    waited_s: tuple[float, ...]  # of each step: wait for a core; empty: unknown
    lead_s: float  # how long the device ran on after the host had enqueued the last step
    warmup_s: tuple[float, ...] = ()  # of each step before them

    def without(self, warmup: int) -> Timed:
        """Return the times without the first steps, which are warm-ups."""
        return Timed(
            self.step_s[warmup:],
            self.cpu_s[warmup:],
            self.waited_s[warmup:],
            self.lead_s,
            self.step_s[:warmup],
        )

    def followed_by(self, later: Timed) -> Timed:
        """Return the times of these steps and of the later ones."""
        return Timed(
            self.step_s + later.step_s,
            self.cpu_s + later.cpu_s,
            self.waited_s + later.waited_s,
            later.lead_s,
            self.warmup_s,
        )


def timed_schedule(steps: Steps, schedule: Schedule, device: torch.device) -> StepPlan[Timed]:
    """Run the warm-ups and the timed steps of a schedule, and time them.

    On CPUs, as many steps follow again and again until enough are clean on all ranks, or the most
    are done, or the training is over: a busy machine costs time, not verdicts. All ranks decide by
    the same steps. A GPU would run idle between the loops, and no wait for a core disturbs it while
    its host is ahead.
    """
    timed = (yield from timed_steps(steps, schedule.steps, device)).without(schedule.warmup)
    most = schedule.measured if device.type == "cuda" else _MOST_TIMES * schedule.measured
    while len(timed.step_s) < most:
        steps.enter(Phase.AFTER)  # a rank that hangs here is in no step
        if _clean_steps(timed) >= schedule.enough_clean:
            break
        try:
            timed = timed.followed_by((yield from timed_steps(steps, schedule.measured, device)))
        except StepsEndedError:
            break
    return timed


def timed_steps(steps: Steps, count: int, device: torch.device) -> StepPlan[Timed]:
    """Run and time ``count`` steps.

    Nothing in the loop waits for the device: a wait would hide the overlap of computation and
    communication, which is what DDP is for.
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
        steps.enter(Phase.TIMED)
        clock.mark()
        witness.mark()
        for _ in range(count):
            yield
            clock.mark()
            witness.mark()
        steps.enter(Phase.FOLLOWED)
        enqueued_s = time.perf_counter()
        step_s = clock.intervals_s(steps.beat)
        lead_s = time.perf_counter() - enqueued_s
    finally:  # the training may be over before
        if pauses:
            gc.enable()
        witness.close()
    return Timed(tuple(step_s), tuple(witness.cpu_s()), tuple(witness.waited_s()), lead_s)


def _clean_steps(timed: Timed) -> int:
    """Return the number of steps in which no rank waited long for a core. Collective."""
    waited = waited_long(timed.step_s, timed.waited_s) or [False] * len(timed.step_s)
    disturbed = torch.tensor(waited, dtype=torch.uint8)
    dist.all_reduce(disturbed, dist.ReduceOp.MAX)
    return len(waited) - int(disturbed.sum())
