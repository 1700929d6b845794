"""The watch of what a rank uses: two readings, around the last warm-ups and the timed steps."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import msgspec

from ddp_perf.core.utilisation import GpuTraffic, GpuUse, NetworkUse, RankUtilisation, RdmaUse
from ddp_perf.system.gpu.nvml_activity import read_traffic, read_use
from ddp_perf.system.host.network import (
    InterfaceBytes,
    PortCounters,
    link_speed,
    rdma_networks,
    rdma_speed,
    read_interface,
    read_rdma_ports,
)
from ddp_perf.system.host.processes import family_cpu
from ddp_perf.system.rank_watch import SHORTEST_S


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
