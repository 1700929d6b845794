"""The choice between the wall time and the CPU time of a step, by launches of one side alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

CALIBRATION_LAUNCHES = 6  # two more choose the worse one hardly less often (benchmarks/duel.py)
# CPU time decides if the spread of wall time is that much larger: then wall time takes half as
# many pairs again. Below that, wall time is the better one, since it is what a user waits for.
_CLEARLY = 1.25


class Yardstick(msgspec.Struct, frozen=True, kw_only=True):
    """The metric that decides on a CPU, and the spreads of a pair's log ratio that chose it."""

    metric: Literal["step_time", "cpu_time"]
    wall: float
    cpu: float
    reason: str


def pair_spread(levels: Sequence[float]) -> float:
    """Estimate the sd of the log ratio of a pair from launches of one side, in their order.

    It is the root mean square of successive differences (von Neumann 1941): what slows the machine
    down for minutes cancels in it as in a pair.

    Raises ValueError with fewer than two launches, or if a level is not positive and finite.
    """
    if len(levels) < 2:
        raise ValueError(f"a spread takes at least two launches, not {len(levels)}")
    if not all(0 < level < math.inf for level in levels):
        raise ValueError(f"levels must be positive and finite, not {list(levels)!r}")
    return math.sqrt(statistics.fmean(math.log(b / a) ** 2 for a, b in pairwise(levels)))


def choose_yardstick(wall: Sequence[float], cpu: Sequence[float]) -> Yardstick:
    """Choose by the step times and the CPU times of the same launches of one side, in order.

    CPU time decides only if its spread is clearly the smaller one: it does not see a step that
    waits longer. The choice depends on one side alone, so that it favours no verdict.

    Raises ValueError as `pair_spread` does, or if the numbers of launches differ.
    """
    if len(wall) != len(cpu):
        raise ValueError(f"{len(wall)} step times and {len(cpu)} CPU times are not of one series")
    wall_spread, cpu_spread = pair_spread(wall), pair_spread(cpu)
    steadier = cpu_spread * _CLEARLY < wall_spread
    spreads = (
        f"launches of one side differ by {100 * wall_spread:.1f} % in step time"
        f" and by {100 * cpu_spread:.1f} % in CPU time"
    )
    return Yardstick(
        metric="cpu_time" if steadier else "step_time",
        wall=wall_spread,
        cpu=cpu_spread,
        reason=f"{'CPU' if steadier else 'step'} time decides: {spreads}",
    )
