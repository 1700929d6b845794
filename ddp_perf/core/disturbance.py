"""Disturbances of a launch while it was measured: CPU contention, steal time, heat and others.

Most figures are shares of the time. None means unknown: a kernel or a virtual machine that does
not report a figure is no proof that nothing happened.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Share = Annotated[float, Meta(ge=0, le=1)]


class RankConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of one rank: its cores, its GPU and its control group.

    They are read just before and just after the timed loop. The start of a rank is not in them: a
    quota that throttles the start lengthens no step.
    """

    stolen: Share | None = None  # steal time, of its cores' time in use
    foreign: Share | None = None  # CPU contention: waits for a core that others used, of the time
    slow_clock: Share | None = None  # 1 − clock ÷ base frequency of its cores
    overheated: bool | None = None  # heat throttled one of its cores
    # Denied share of the CPU time that the control group wanted: by others' use of its quota, or
    # by whose use nobody knows.
    quota: Share | None = None
    own_quota: Share | None = None  # the same, because the ranks themselves used the quota up
    memory: Share | None = None  # share of the time in which some process waited for memory
    own_memory: Share | None = None  # the same, but the ranks themselves filled the memory
    gpu_heat: Share | None = None  # share of the time in which heat reduced its GPU's clocks
    gpu_slowed: bool | None = None  # hardware reduced its clocks, after the last step
    gpu_shared: bool | None = None  # others computed on its GPU
    gpu_errors: bool | None = None  # memory errors that ECC could not correct


def share(part: float, whole: float) -> float:
    """Return part ÷ whole within 0 and 1, and 0 if `whole` is not positive.

    The kernel counts in ticks, so a quotient may lie a little outside.
    """
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
