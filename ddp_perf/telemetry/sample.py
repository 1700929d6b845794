"""The samples of a rank: its counters just before and just after the timed steps.

There is no thread, and nothing inside the timed loop: two readings of counters that the kernel and
NVML have anyway are enough.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddp_perf.core.launch import GpuUse, NetworkUse, share
from ddp_perf.system.gpu.nvml import count_processes
from ddp_perf.system.gpu.nvml_activity import GpuCounters, read_counters, read_use
from ddp_perf.system.host.control_group import (
    CpuUse,
    memory_limit,
    read_cpu_use,
    read_memory_stall_s,
)
from ddp_perf.system.host.network import RdmaCounters, read_interface, read_rdma
from ddp_perf.system.host.processes import (
    TICKS_PER_S,
    CoreTimes,
    FamilyCpu,
    clock_ratio,
    family_cpu,
    family_memory,
    heat_events,
    read_core_times,
    thread_waits_s,
)

SHORTEST_S = 25 / TICKS_PER_S  # in a shorter time an error of a tick or two is a large share


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one rank at one moment. Empty or None: unknown."""

    at_s: float  # beside the times of the cores
    used_at_s: float  # beside the CPU time of the rank
    cpu_s: float  # CPU time of the rank's process
    system_s: float  # the part of it in the kernel
    children_s: float | None = None  # CPU time of its children, ended ones too
    cores: dict[int, CoreTimes] = {}
    family_cpu: FamilyCpu | None = None  # of all ranks, with their children; some on its cores
    waits_s: dict[int, float] = {}  # of each thread of the rank: time ready to run, without a core
    heat_events: int | None = None
    clock_ratio: float | None = None  # to the base frequency
    group_uses: dict[Path, CpuUse] = {}  # of its control group and of each group above it
    memory_stall_s: float | None = None
    network: NetworkUse | None = None
    rdma: RdmaCounters | None = None
    gpu: GpuCounters | None = None  # None: on the CPU tier
    # Reading these takes long: the first before the warm-up, and all of them after the steps.
    gpu_processes: int | None = None  # how many compute on its GPU
    gpu_use: GpuUse | None = None  # since the sample before the steps
    memory_filled: float | None = None  # by all ranks, of the limit; read only after a wait


class Sampler:
    """The reader of one rank's samples.

    It is made before the rank warms up: some readings take long, and a GPU that is idle meanwhile
    runs faster afterwards.
    """

    def __init__(
        self,
        cores: Sequence[int],
        *,
        pinned: bool,
        gpu: str | None = None,
        interface: str | None = None,
        reads_rdma: bool = False,
    ) -> None:
        """Take the slow readings.

        ``pinned``: no other rank uses these cores; otherwise they are all cores that the rank may
        use. ``gpu``: the UUID of its GPU. ``interface``: the network interface that this rank
        reads, if it is the one that does. ``reads_rdma``: it reads the ports for RDMA, too.
        """
        self._cores = cores
        self._pinned = pinned
        self._gpu = gpu
        self._interface = interface
        self._reads_rdma = reads_rdma
        self._gpu_processes = None if gpu is None else count_processes(gpu)

    def read(self) -> Sample:
        """Read the counters."""
        times, at_s = read_core_times(), time.monotonic()
        # On a whole machine some cores are always idle, and reading all clocks takes long.
        clocked = self._cores if self._pinned else ()
        return Sample(
            at_s=at_s,
            children_s=_children_s(),
            cores={core: times[core] for core in self._cores if core in times},
            family_cpu=family_cpu(os.getppid(), self._cores),
            waits_s=thread_waits_s(),
            heat_events=heat_events(clocked),
            clock_ratio=clock_ratio(clocked),
            group_uses=read_cpu_use(),
            memory_stall_s=read_memory_stall_s(),
            network=None if self._interface is None else read_interface(self._interface),
            rdma=read_rdma() if self._reads_rdma else None,
            gpu=None if self._gpu is None else read_counters(self._gpu),
            gpu_processes=self._gpu_processes,
            **_own(),  # last: what a sample takes is before the steps
        )

    def read_after(self, before: Sample) -> Sample:
        """Read the counters after the steps that followed ``before``, and then what takes long."""
        own = _own()  # first: what a sample takes is after the steps
        after = msgspec.structs.replace(self.read(), **own)
        slow: dict[str, Any] = {}
        if self._gpu is not None:
            to_epoch_s = time.time() - time.monotonic()
            period = (round((to_epoch_s + one.used_at_s) * 1e6) for one in (before, after))
            slow["gpu_use"] = read_use(self._gpu, *period)
            slow["gpu_processes"] = count_processes(self._gpu)
        if waited_for_memory(before, after):
            slow["memory_filled"] = _memory_filled()
        return msgspec.structs.replace(after, **slow)


def _own() -> dict[str, Any]:
    """Return the moment, and the CPU time of this process until then."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = own.ru_utime + own.ru_stime
    return {"used_at_s": time.monotonic(), "cpu_s": cpu_s, "system_s": own.ru_stime}


def _memory_filled() -> float | None:
    filled, limit = family_memory(os.getppid()), memory_limit()
    return None if filled is None or limit is None else share(filled, limit)


def waited_for_memory(before: Sample, after: Sample) -> float | None:
    """Return the share of the time in which some process waited for memory; None: unknown."""
    if before.memory_stall_s is None or after.memory_stall_s is None:
        return None
    return share(after.memory_stall_s - before.memory_stall_s, after.at_s - before.at_s)


def _children_s() -> float | None:
    running = family_cpu(os.getpid(), ())
    if running is None:
        return None
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return running.total + ended.ru_utime + ended.ru_stime
