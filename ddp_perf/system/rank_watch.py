"""The disturbances of a rank and what it used, between two moments of its process."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ddp_perf.core.gpu import HARDWARE_SLOWDOWNS, GpuHealth, GpuLoad
from ddp_perf.core.launch import (
    GpuTraffic,
    GpuUse,
    NetworkUse,
    RankConditions,
    RankUtilisation,
    RdmaUse,
    share,
)
from ddp_perf.core.metric import SHORTEST_ENERGY_S
from ddp_perf.system.gpu.nvml import read_counters, read_health
from ddp_perf.system.gpu.nvml_activity import read_traffic, read_use
from ddp_perf.system.host.control_group import (
    GroupReading,
    held_back_ratio,
    memory_limit,
    memory_share,
    quota_shares,
    read_group,
)
from ddp_perf.system.host.network import (
    InterfaceBytes,
    PortCounters,
    link_speed,
    rdma_networks,
    rdma_speed,
    read_interface,
    read_rdma_ports,
)
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

# The conditions of a rank, its cores and its GPU, between two moments of its process.
#
# There is no thread, and nothing inside the timed loop: two readings of counters that the kernel
# and NVML have anyway are enough.


SHORTEST_S = 25 / TICKS_PER_S  # in a shorter time an error of a tick or two is a large share
_FULL = 0.9  # of the memory limit: the rest is the kernel's, and files that it keeps


class RankReading(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one rank at one moment. Empty or None: unknown."""

    at_s: float
    cores: dict[int, CoreTimes] = {}
    family_cpu: FamilyCpu | None = None  # of all ranks, with their children; some on its cores
    waits_s: dict[int, float] = {}  # of each thread of the rank: time ready to run, without a core
    heat_events: int | None = None
    clock_ratio: float | None = None  # to the base frequency
    group: GroupReading = GroupReading()
    memory_filled: float | None = None  # by all ranks, of the limit; read only after a wait
    gpu: GpuHealth | None = None  # None: on the CPU tier


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of a rank, and the energy of its GPU."""

    conditions: RankConditions
    energy_j: float | None  # None: unknown, or the CPU tier


class RankWatch:
    """The watch of a rank, which starts with ``begin``.

    It is made before the rank warms up: some readings take long, and a GPU that is idle meanwhile
    runs faster afterwards.
    """

    def __init__(
        self,
        cores: Sequence[int],
        *,
        pinned: bool,
        gpu: str | None = None,
        read_gpu: Callable[[str], GpuHealth] = read_health,
        read_gpu_counters: Callable[[str], GpuHealth] = read_counters,
    ) -> None:
        """Take the slow readings.

        ``pinned``: no other rank uses these cores; otherwise they are all cores that the rank may
        use. ``gpu``: the UUID of its GPU.
        """
        self._cores = cores
        self._pinned = pinned
        self._gpu = gpu
        self._read_gpu = read_gpu
        self._read_gpu_counters = read_gpu_counters
        self._gpu_at_rest = None if gpu is None else read_gpu(gpu)
        self._before = RankReading(at_s=time.monotonic())

    def begin(self) -> None:
        """Start the watch.

        Only the counters of the GPU are read here. Its other users were read when the watch was
        made.
        """
        gpu = None
        if self._gpu is not None and self._gpu_at_rest is not None:
            counters = self._read_gpu_counters(self._gpu)
            gpu = msgspec.structs.replace(counters, processes=self._gpu_at_rest.processes)
        self._before = self._read(gpu)

    def watched(self, load: GpuLoad | None = None) -> Watched:
        """Return the conditions since ``begin``.

        ``load`` was read while the GPU ran the last steps. Idle, it has its full clock again.
        """
        gpu = None
        if self._gpu is not None:
            throttle = None if load is None else load.throttle
            gpu = msgspec.structs.replace(self._read_gpu(self._gpu), throttle=throttle)
        after = self._read(gpu)
        return Watched(
            conditions=rank_conditions(
                self._before, _with_memory_filled(self._before, after), pinned=self._pinned
            ),
            energy_j=energy_j(self._before, after),
        )

    def _read(self, gpu: GpuHealth | None) -> RankReading:
        times = read_core_times()
        # On a whole machine some cores are always idle, and reading all clocks takes long.
        own = self._cores if self._pinned else ()
        return RankReading(
            at_s=time.monotonic(),
            cores={core: times[core] for core in self._cores if core in times},
            family_cpu=family_cpu(os.getppid(), self._cores),
            waits_s=thread_waits_s(),
            heat_events=heat_events(own),
            clock_ratio=clock_ratio(own),
            group=read_group(),
            gpu=gpu,
        )


def _with_memory_filled(before: RankReading, after: RankReading) -> RankReading:
    """Return ``after`` with the share of the memory limit that the ranks fill.

    It is read only if a process waited for memory, because reading it takes long.
    """
    if not memory_share(before.group, after.group, after.at_s - before.at_s):
        return after
    filled, limit = family_memory(os.getppid()), memory_limit()
    if filled is None or limit is None:
        return after
    return msgspec.structs.replace(after, memory_filled=share(filled, limit))


def rank_conditions(before: RankReading, after: RankReading, *, pinned: bool) -> RankConditions:
    """Return the conditions of one rank between two readings."""
    wall_s = after.at_s - before.at_s
    cores = [
        times.since(before.cores[core])
        for core, times in after.cores.items()
        if core in before.cores
    ]
    is_counted = any(times.total > 0 for times in cores)  # False in some containers
    if not is_counted or wall_s < SHORTEST_S:
        cores = []
    return RankConditions(
        stolen=_stolen(cores, wall_s),
        foreign=_foreign(cores, before, after, pinned=pinned),
        slow_clock=_slow_clock(before, after),
        overheated=_overheated(before, after),
        **_limits(before, after),
        **(_gpu_conditions(before.gpu, after.gpu, wall_s) if before.gpu and after.gpu else {}),
    )


def _limits(before: RankReading, after: RankReading) -> dict[str, Any]:
    """Return the fields of RankConditions that belong to limits of the control groups.

    What the ranks use themselves is the cost of their step; only the rest is a disturbance. The
    CPU time of processes is counted in ticks, so a short time has no such split.
    """
    wall_s = after.at_s - before.at_s
    family_s = None
    if before.family_cpu is not None and after.family_cpu is not None and wall_s >= SHORTEST_S:
        family_s = after.family_cpu.total - before.family_cpu.total
    quota = quota_shares(before.group, after.group, family_s)
    waited = memory_share(before.group, after.group, wall_s)
    is_own = after.memory_filled is not None and after.memory_filled >= _FULL
    return {
        "quota": quota.others,
        "own_quota": quota.own,
        "memory": 0.0 if is_own else waited,
        "own_memory": waited if is_own else None,
    }


def _gpu_conditions(before: GpuHealth, after: GpuHealth, wall_s: float) -> dict[str, Any]:
    """Return the fields of RankConditions that belong to the GPU.

    The rank itself computes on the GPU at both moments. So if NVML lists no process, a container
    hides the processes. The pid of the rank does not help: a container has its own pids.
    """
    heat_s = _increase(before.heat_s, after.heat_s)
    errors = _increase(before.ecc_uncorrected, after.ecc_uncorrected)
    users = [len(health.processes) for health in (before, after) if health.processes]
    return {
        "gpu_heat": None if heat_s is None else share(heat_s, wall_s),
        "gpu_slowed": _slowed(after),
        "gpu_shared": max(users) > 1 if users else None,
        "gpu_errors": None if errors is None else errors > 0,
    }


def _slowed(after: GpuHealth) -> bool | None:
    """Return whether hardware reduced the clocks in the last steps, by more than a power cap.

    What software heat costs, the clock under load shows.
    """
    return None if after.throttle is None else not HARDWARE_SLOWDOWNS.isdisjoint(after.throttle)


def energy_j(before: RankReading, after: RankReading) -> float | None:
    """Return the energy of the rank's GPU between two readings in joules.

    None: the GPU does not count it, or the time is too short.
    """
    if before.gpu is None or after.gpu is None or after.at_s - before.at_s < SHORTEST_ENERGY_S:
        return None
    joules = _increase(before.gpu.energy_j, after.gpu.energy_j)
    return joules if joules is not None and joules > 0 else None  # a reload resets the counter


def _increase(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _stolen(cores: Sequence[CoreTimes], wall_s: float) -> float | None:
    """Return the steal time as a share of the time in which the cores were wanted.

    The whole time of one core is used instead if it is longer. Otherwise a core that is idle
    nearly all the time could lose all of the little time that it wanted.
    """
    if not cores:
        return None
    wanted_s = sum(wall_s - times.idle for times in cores)
    return share(sum(times.stolen for times in cores), max(wanted_s, wall_s))


def _foreign(
    cores: Sequence[CoreTimes], before: RankReading, after: RankReading, *, pinned: bool
) -> float | None:
    """Return the CPU contention: the share of the time in which others had the rank's core.

    Neither the time of others nor the waits of the rank are enough alone. Others may use the time
    that the rank leaves idle. And a rank also waits for a core if its own threads or workers use
    it, which is no disturbance. For pinned cores the result is the smaller of the two.

    The waits of all threads are added, since threads wait for each other as well. For a DDP step
    over gloo that lost 43 % of its time to others, the sum gives 46 % and the longest wait 23 %.

    While a quota holds the rank back, others may use its core and take nothing from it. This time
    is left out of theirs, as far as the core was not idle. It is estimated from the rank's CPU
    time, as if the quota held all processes of the group back alike.

    For a rank that may run anywhere, its waits are multiplied by the others' share of all cores.
    """
    waits_s = [wait_s - before.waits_s.get(id_, 0.0) for id_, wait_s in after.waits_s.items()]
    if not cores or not waits_s or before.family_cpu is None or after.family_cpu is None:
        return None
    wall_s = after.at_s - before.at_s
    # Interrupts are left out: most kernels also count them for the interrupted process.
    used_s = sum(wall_s - times.idle - times.stolen - times.interrupts for times in cores)
    family_s = after.family_cpu.on_cores - before.family_cpu.on_cores
    held_back_s = family_s * held_back_ratio(before.group, after.group)
    others_s = used_s - family_s - max(0.0, held_back_s - sum(times.idle for times in cores))
    if pinned:
        return share(min(others_s, sum(waits_s)), wall_s)
    return share(sum(waits_s), wall_s) * share(others_s, len(cores) * wall_s)


def _slow_clock(before: RankReading, after: RankReading) -> float | None:
    """Return 1 − clock ÷ base frequency, at the faster of both moments.

    So one slow moment is ignored.
    """
    if before.clock_ratio is None or after.clock_ratio is None:
        return None
    return max(0.0, 1 - max(before.clock_ratio, after.clock_ratio))


def _overheated(before: RankReading, after: RankReading) -> bool | None:
    if before.heat_events is None or after.heat_events is None:
        return None
    return after.heat_events > before.heat_events


# The watch of what a rank uses: two readings, around the last warm-ups and the timed steps.


class UseReading(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one rank at one moment. None: unknown."""

    at_s: float
    at_us: int  # the same moment, in µs since 1970
    user_s: float  # CPU time of the rank's process
    system_s: float
    children_s: float | None = None  # CPU time of its children, ended ones too
    network: InterfaceBytes | None = None
    rdma: PortCounters | None = None
    traffic: GpuTraffic = GpuTraffic()


class UtilisationWatch:
    """The watch of one rank's utilisation, which starts with ``begin``."""

    def __init__(
        self,
        *,
        gpu: str | None,
        interface: str | None,
        reads_rdma: bool = False,
        gpu_traffic: Callable[[str], GpuTraffic] = read_traffic,
        gpu_use: Callable[[str, int, int], GpuUse] = read_use,
    ) -> None:
        """Read nothing yet.

        ``gpu``: the UUID of the rank's GPU. ``interface``: the network interface that this rank
        reads, if it is the one that does. ``reads_rdma``: it reads the ports for RDMA, too.
        """
        self._gpu = gpu
        self._interface = interface
        self._reads_rdma = reads_rdma
        self._gpu_traffic = gpu_traffic
        self._gpu_use = gpu_use
        self._before: UseReading | None = None

    def begin(self) -> None:
        """Read the counters before the steps."""
        self._before = self._read()

    def used(self) -> RankUtilisation:
        """Return what the rank used since ``begin``."""
        assert self._before is not None  # begin() was called
        before, after = self._before, self._read()
        gpu = None
        if self._gpu is not None:
            gpu = msgspec.structs.replace(
                self._gpu_use(self._gpu, before.at_us, after.at_us),
                traffic=traffic_between(before.traffic, after.traffic),
            )
        return RankUtilisation(
            period_s=after.at_s - before.at_s,
            cpu_s=after.user_s + after.system_s - before.user_s - before.system_s,
            system_s=after.system_s - before.system_s,
            loaders_cpu_s=children_between(before, after),
            network=self._network(before.network, after.network),
            rdma=_rdma_between(before.rdma, after.rdma),
            gpu=gpu,
        )

    def _read(self) -> UseReading:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return UseReading(
            at_s=time.monotonic(),
            at_us=time.time_ns() // 1000,
            user_s=own.ru_utime,
            system_s=own.ru_stime,
            children_s=_children_s(),
            network=None if self._interface is None else read_interface(self._interface),
            rdma=read_rdma_ports() if self._reads_rdma else None,
            traffic=GpuTraffic() if self._gpu is None else self._gpu_traffic(self._gpu),
        )

    def _network(
        self, before: InterfaceBytes | None, after: InterfaceBytes | None
    ) -> NetworkUse | None:
        if self._interface is None or before is None or after is None:
            return None
        if after.sent < before.sent or after.received < before.received:
            return None  # somebody made the interface anew
        return NetworkUse(
            interface=self._interface,
            sent=after.sent - before.sent,
            received=after.received - before.received,
            speed=link_speed(self._interface),
        )


def traffic_between(before: GpuTraffic, after: GpuTraffic) -> GpuTraffic:
    """Return the bytes between two readings. A counter that began again is unknown."""
    bytes_ = {}
    for name in GpuTraffic.__struct_fields__:
        first, last = getattr(before, name), getattr(after, name)
        bytes_[name] = last - first if None not in (first, last) and last >= first else None
    return GpuTraffic(**bytes_)


def _rdma_between(before: PortCounters | None, after: PortCounters | None) -> RdmaUse | None:
    if before is None or after is None or (ports := rdma_networks()) is None:
        return None
    if before.ports != after.ports:
        return None  # a port came up or went down, with all that it ever counted
    if after.sent < before.sent or after.received < before.received:
        return None  # somebody cleared the counters
    waited = None
    if before.waited is not None and after.waited is not None and after.waited >= before.waited:
        waited = after.waited - before.waited
    return RdmaUse(
        ports=ports,
        sent=after.sent - before.sent,
        received=after.received - before.received,
        waited=waited,
        speed=rdma_speed(),
    )


def children_between(before: UseReading, after: UseReading) -> float | None:
    """Return the CPU seconds of the children; None: unknown, or too few ticks for a figure."""
    if before.children_s is None or after.children_s is None:
        return None
    seconds = after.children_s - before.children_s
    if seconds > 0 and after.at_s - before.at_s < SHORTEST_S:
        return None
    return max(0.0, seconds)  # an ended child is counted more exactly than a running one


def _children_s() -> float | None:
    running = family_cpu(os.getpid(), ())
    if running is None:
        return None
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return running.total + ended.ru_utime + ended.ru_stime
