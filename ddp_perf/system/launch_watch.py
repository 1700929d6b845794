"""What the control group went through between two moments of a launch."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ddp_perf.core.conditions import LaunchConditions, share
from ddp_perf.system.control_group import CpuUse, read_cpu_use, read_memory_stall_s


class LaunchReading(msgspec.Struct, frozen=True, kw_only=True):
    """Counters at one moment. Empty or None: not known."""

    at_s: float
    cpu_uses: dict[Path, CpuUse] = {}  # of the own control group and of each above it
    memory_stall_s: float | None = None


class LaunchWatch:
    """Watches from its making on."""

    def __init__(self) -> None:
        self._before = _read()

    def conditions(self) -> LaunchConditions:
        """What happened since."""
        return launch_conditions(self._before, _read())


def _read() -> LaunchReading:
    return LaunchReading(
        at_s=time.monotonic(),
        cpu_uses=read_cpu_use(),
        memory_stall_s=read_memory_stall_s(),
    )


def launch_conditions(before: LaunchReading, after: LaunchReading) -> LaunchConditions:
    """What happened between two readings."""
    quotas = [
        _denied(before.cpu_uses[group], use)
        for group, use in after.cpu_uses.items()
        if group in before.cpu_uses
    ]
    return LaunchConditions(quota=max(quotas, default=None), memory=_memory(before, after))


def _denied(before: CpuUse, after: CpuUse) -> float:
    """Of the time that the group's processes wanted to run, over all cores: both counters add
    up the cores, so neither their number nor that of the ranks matters.
    """
    throttled_s = after.throttled - before.throttled
    return share(throttled_s, after.used - before.used + throttled_s)


def _memory(before: LaunchReading, after: LaunchReading) -> float | None:
    if before.memory_stall_s is None or after.memory_stall_s is None:
        return None
    return share(after.memory_stall_s - before.memory_stall_s, after.at_s - before.at_s)
