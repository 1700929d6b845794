"""The times of the cores since boot, as /proc/stat counts them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

# Most times in /proc are in ticks, usually of 10 ms. Windows has neither.
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class CoreTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times of one core since boot, in seconds.

    The time that a core worked is best computed from its idle time. Kernels that let an idle core
    sleep (CONFIG_NO_HZ) measure idle time at each change. The time of programs is sampled at
    ticks, with an error of several per cent of a second.
    """

    total: float  # with the sampled time of programs; it is constant if nothing is counted
    idle: float
    interrupts: float
    stolen: float  # steal time: the hypervisor gave it to another machine

    def since(self, before: CoreTimes) -> CoreTimes:
        """Return the times after ``before``, an earlier reading of this core."""
        return CoreTimes(
            total=self.total - before.total,
            idle=self.idle - before.idle,
            interrupts=self.interrupts - before.interrupts,
            stolen=self.stolen - before.stolen,
        )


def read_core_times(root: Path = Path("/")) -> dict[int, CoreTimes]:
    """Return the times by core, or {} if the kernel does not report them."""
    try:
        text = (root / "proc/stat").read_text(encoding="utf-8")
    except OSError:
        return {}
    return parse_core_times(text)


def parse_core_times(text: str) -> dict[int, CoreTimes]:
    """Parse the lines ``cpu0 user nice system idle iowait irq softirq steal …`` of /proc/stat."""
    cores = {}
    for line in text.splitlines():
        name, *fields = line.split() or [""]
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdecimal() and len(fields) >= 8:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, fields[:8])
            ticks = user + nice + system + idle + iowait + irq + softirq + steal
            cores[int(number)] = CoreTimes(
                total=ticks / TICKS_PER_S,
                idle=(idle + iowait) / TICKS_PER_S,
                interrupts=(irq + softirq) / TICKS_PER_S,
                stolen=steal / TICKS_PER_S,
            )
    return cores
