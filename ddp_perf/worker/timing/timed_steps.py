"""The timed steps of a launch, and the warm-up before them."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from ddp_perf.core.case import Schedule
from ddp_perf.core.gpu import GpuLoad
from ddp_perf.core.launch import WarmUp, waited_long
from ddp_perf.worker.report import Phase
from ddp_perf.worker.steps.protocol import StepPlan, Steps, StepsEndedError
from ddp_perf.worker.timing.clock import (
    NoWitness,
    StepWitness,
    all_agree,
    gained_lead_s,
    read_followed,
    step_clock,
)

# The timed steps of a launch, and further ones on a busy CPU until enough are undisturbed.


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


# Extra warm-ups of a GPU: steps until step time, clock, power and temperature are steady.
#
# Then clocks have risen, kernels are chosen, caches are filled, and a power limit has taken effect.
# A few more steps follow after the readings that come next. All this is before the timed loop,
# which has its own warm-ups: a decision inside the loop would let the GPU run idle.


_FIRST = 10  # steps of the first window, which only shows how many steps the others need
_FEWEST = 5  # steps of any other window
_WINDOW_S = 0.5  # of steps: a window gives one median, and one reading of the GPU
_INTERVALS = 20  # the most of a window: each is one step, or several short ones
_ALIKE = 3  # windows that must agree: two may agree by chance while the time still falls
_ALIKE_S = 3.0  # that they last at least: a power limit and a boost take seconds to settle
_SHARE = 0.01  # largest median ÷ smallest - 1. No shipped tolerance is under 2 %
# Between the means of the older and the newer half of these windows: single readings vary.
_CLOCK_SHARE = 0.01
_POWER_SHARE = 0.05
_WARMING_C = 0.5  # in about 1.5 s
_LONGEST_S = 30.0  # a heat sink may need minutes: then the warm-up ends here, and is not steady
_AGAIN_S = 0.2  # of more steps, since the GPU idles for the milliseconds that readings take
LEAST_EXTRA_WARMUPS = _FIRST + _ALIKE * _FEWEST + 1


class Window(NamedTuple):
    """Some steps of the warm-up."""

    step_s: float  # median, of the slowest rank
    seconds: float  # of the slowest rank
    load: GpuLoad | None  # of this rank's GPU; None: it was idle when it was read


def warm_up(
    steps: Steps, device: torch.device, read_load: Callable[[], GpuLoad]
) -> StepPlan[WarmUp]:
    """Run steps until the GPUs of all ranks are steady, or until a limit of seconds.

    Collective. All ranks decide by the same figures, so all run the same number of steps.
    """
    steps.enter(Phase.WARM_UP)
    return (
        yield from until_steady(
            lambda count: _window(steps, device, count, read_load),
            lambda steady: all_agree(steady, device),
        )
    )


def until_steady(
    window: Callable[[int], StepPlan[Window]], agree: Callable[[bool], bool]
) -> StepPlan[WarmUp]:
    """Run windows until the newest ones agree.

    ``window`` runs so many steps. ``agree`` returns whether what it is given is true on all ranks.
    """
    newest = yield from window(_FIRST)
    taken, elapsed_s, steady = _FIRST, newest.seconds, False
    windows: list[Window] = []
    while not steady and elapsed_s < _LONGEST_S:
        count = max(_FEWEST, math.ceil(_WINDOW_S / newest.step_s))
        newest = yield from window(count)
        windows.append(newest)
        taken += count
        elapsed_s += newest.seconds
        compared = _compared(windows)
        # The times are those of all ranks, so that none of them is alone in the question.
        steady = has_steady_steps(compared) and agree(has_steady_load(compared))
    again = math.ceil(_AGAIN_S / newest.step_s)
    return WarmUp(steps=taken, steady=steady, again=again, step_s=newest.step_s, load=newest.load)


def _compared(windows: Sequence[Window]) -> Sequence[Window]:
    """Return the newest windows that must agree, or none if there are too few so far."""
    for count in range(_ALIKE, len(windows) + 1):
        if sum(window.seconds for window in windows[-count:]) >= _ALIKE_S:
            return windows[-count:]
    return ()


def has_steady_steps(windows: Sequence[Window]) -> bool:
    """Return whether there are windows, and they have the same step time."""
    medians = [window.step_s for window in windows]
    return bool(medians) and max(medians) <= min(medians) * (1 + _SHARE)


def has_steady_load(windows: Sequence[Window]) -> bool:
    """Return whether nothing that is known of the GPU moved from the older to the newer windows."""
    loads = [window.load for window in windows if window.load is not None]
    clocks, powers, temperatures = (
        [value for load in loads if (value := getattr(load, name)) is not None]
        for name in ("sm_clock_mhz", "power_w", "temperature_c")
    )
    return (
        _moved(clocks) <= _CLOCK_SHARE * max(clocks, default=0)
        and _moved(powers) <= _POWER_SHARE * max(powers, default=0)
        and _moved(temperatures) <= _WARMING_C
    )


def _moved(values: Sequence[float]) -> float:
    half = len(values) // 2
    if not half:
        return 0.0
    return abs(statistics.fmean(values[-half:]) - statistics.fmean(values[:half]))


def _window(
    steps: Steps, device: torch.device, count: int, read_load: Callable[[], GpuLoad]
) -> StepPlan[Window]:
    """Run ``count`` steps. An event for each would take long to make if they are short."""
    each = math.ceil(count / _INTERVALS)
    clock = step_clock(device, _INTERVALS)
    clock.mark()
    for done in range(1, count + 1):
        yield
        if done % each == 0 or done == count:
            clock.mark()
    load = read_followed(clock, read_load)
    times_s = clock.intervals_s(steps.beat)
    step_s, seconds = slowest([statistics.median(times_s) / each, sum(times_s)], device)
    return Window(step_s, seconds, load)


def slowest(figures: Sequence[float], device: torch.device) -> list[float]:
    """Return each figure of the rank that has the largest one. Collective."""
    largest = torch.tensor(figures, dtype=torch.float64, device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    values: list[float] = largest.tolist()
    return values
