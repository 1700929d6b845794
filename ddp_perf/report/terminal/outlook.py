"""The short form of ``ddp-perf doctor``: what a machine can decide now, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.case import Tier
from ddp_perf.core.gpu import GpuHealth, GpuMachine
from ddp_perf.render.units import counted
from ddp_perf.system.checks import gpu_spoilers, host_spoilers, is_busy
from ddp_perf.system.host.host_state import HostState


def outlook(tier: Tier, machine: GpuMachine, health: Sequence[GpuHealth], host: HostState) -> str:
    """Return what is here, how much of it others use, and what can be decided with that."""
    here = counted(len(host.cores), "core")
    found = [*host_spoilers(host)]
    if tier == "gpu":
        here = f"{counted(len(machine.gpus), 'GPU')} ({machine.name}), {here}"
        found += gpu_spoilers(machine, health, host.cores)
    if host.busy is not None:
        here += f", other processes take {host.busy / len(host.cores):.0%}"
    if is_busy(host):
        times = "times only on a quieter machine"
    elif found:
        times = "times are disturbed: ddp-perf doctor states by what, and what helps"
    else:
        times = "times, too" if tier == "gpu" else "times with a tolerance of 10 % or more"
    return f"{here}: structure, losses and work exactly; {times}"
