"""What was taken from a launch while it was measured.

Shares, most of them of the time. None: not known here. A kernel or a virtual machine that does
not say is no reason to believe that nothing happened.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]


class RankConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Of one rank, its cores, its GPU and its control group, from just before the timed loop to
    just after it. Starting up is no part of it: what a quota throttles there costs no step.
    """

    stolen: Share | None = None  # of its cores' time in use: the hypervisor ran other machines
    foreign: Share | None = None  # of the time: it waited for a core while others ran on it
    slow_clock: Share | None = None  # how far its cores' clock was below their base frequency
    overheated: bool | None = None  # whether heat throttled one of its cores
    quota: Share | None = None  # of the CPU time that the control group wanted: was denied
    memory: Share | None = None  # of the time: some process waited for memory
    gpu_heat: Share | None = None  # of the time: heat held its GPU's clocks down
    gpu_slowed: bool | None = None  # whether its hardware held its clocks down, after the last step
    gpu_shared: bool | None = None  # whether others computed on its GPU
    gpu_errors: bool | None = None  # whether memory failed that ECC could not correct


def share(part: float, whole: float) -> float:
    """Part ÷ whole, from 0 to 1: what the kernel counts in ticks may come out a little beyond.
    Nothing of nothing is 0.
    """
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
