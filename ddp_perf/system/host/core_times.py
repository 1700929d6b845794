"""What the cores did so far, as /proc/stat counts it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

TICKS_PER_S = os.sysconf("SC_CLK_TCK")  # the unit of most times in /proc: 10 ms as a rule


class CoreTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one core since boot.

    What it worked is best told from what it idled: that is measured at each change, where
    kernels let an idle core sleep (CONFIG_NO_HZ), and the time of programs is sampled at
    ticks, which is off by several per cent of a second.
    """

    total: float  # with the time of programs, sampled; it stands still where nothing is counted
    idle: float
    interrupts: float
    stolen: float  # wanted by this machine, given to another one by the hypervisor

    def since(self, before: CoreTimes) -> CoreTimes:
        """What the core did after ``before``."""
        return CoreTimes(
            total=self.total - before.total,
            idle=self.idle - before.idle,
            interrupts=self.interrupts - before.interrupts,
            stolen=self.stolen - before.stolen,
        )


def read_core_times(root: Path = Path("/")) -> dict[int, CoreTimes]:
    """By core; empty where the kernel does not say."""
    try:
        text = (root / "proc/stat").read_text(encoding="utf-8")
    except OSError:
        return {}
    return parse_core_times(text)


def parse_core_times(text: str) -> dict[int, CoreTimes]:
    """The lines ``cpu0 user nice system idle iowait irq softirq steal …`` of /proc/stat."""
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
