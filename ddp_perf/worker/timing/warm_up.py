"""Extra warm-ups of a GPU: steps until the step time is steady.

Then clocks have risen, kernels are chosen and caches are filled. A few more steps follow after the
readings that come next. All this is before the timed loop, which has its own warm-ups: a decision
inside the loop would let the GPU run idle.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist

from ddp_perf.core.case import MOST_EXTRA_WARMUPS
from ddp_perf.core.launch import WarmUp
from ddp_perf.worker.heartbeat import Phase
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import Steps
from ddp_perf.worker.timing.clock import step_clock

_WINDOW = 10  # steps: each window gives one median
_ALIKE = 3  # windows in a row that must agree: two may agree by chance while the time still falls
_SHARE = 0.01  # largest median ÷ smallest - 1. No shipped tolerance is under 2 %
_LONGEST_S = 20.0
_AGAIN_S = 0.2  # of more steps, since the GPU idles for the milliseconds that readings take
LEAST_EXTRA_WARMUPS = _ALIKE * _WINDOW + 1


def warm_up(steps: Steps, device: torch.device) -> StepPlan[WarmUp]:
    """Run steps until the step time is steady, up to limits on steps and on seconds.

    Collective. All ranks decide by the same figures, so all run the same number of steps.
    """
    steps.enter(Phase.WARM_UP)
    return (yield from until_steady(lambda: _slowest_window(steps, device)))


def until_steady(window: Callable[[], StepPlan[tuple[float, float]]]) -> StepPlan[WarmUp]:
    """Run windows until three in a row agree.

    ``window`` runs one, and returns its median step and its duration, in seconds.
    """
    medians: list[float] = []
    elapsed_s = 0.0
    steady = False
    while not steady and len(medians) * _WINDOW < MOST_EXTRA_WARMUPS and elapsed_s < _LONGEST_S:
        median_s, window_s = yield from window()
        medians.append(median_s)
        elapsed_s += window_s
        newest = medians[-_ALIKE:]
        steady = len(newest) == _ALIKE and max(newest) <= min(newest) * (1 + _SHARE)
    again = min(MOST_EXTRA_WARMUPS, math.ceil(_AGAIN_S / medians[-1]))
    return WarmUp(steps=len(medians) * _WINDOW, steady=steady, again=again)


def _slowest_window(steps: Steps, device: torch.device) -> StepPlan[tuple[float, float]]:
    clock = step_clock(device, _WINDOW)
    clock.mark()
    for _ in range(_WINDOW):
        yield
        clock.mark()
    return slowest(clock.intervals_s(steps.beat), device)


def slowest(step_s: list[float], device: torch.device) -> tuple[float, float]:
    """Return the median and the sum of the steps, each of the slowest rank. Collective."""
    figures = torch.tensor([statistics.median(step_s), sum(step_s)], device=device)
    dist.all_reduce(figures, dist.ReduceOp.MAX)
    median_s, window_s = figures.tolist()
    return median_s, window_s
