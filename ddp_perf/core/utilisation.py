"""The utilisation of a rank: what it used of its cores, its GPU and its network while measured.

Each figure is a difference of two counters, or a mean of samples that the driver keeps anyway, over
one period: from just before the last warm-ups until just after the last timed step. Nothing is read
within it. None means unknown. docs/measuring.md has the source, the cost and the limits of each.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddp_perf.core.disturbance import Share


class GpuTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one GPU: counters since the driver was loaded, or those of a period."""

    pcie_sent: int | None = None
    pcie_received: int | None = None
    nvlink_sent: int | None = None  # over all its links, without protocol overhead
    nvlink_received: int | None = None


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a rank's GPU by all its processes."""

    busy: Share | None = None  # of the time: some kernel ran, however few of the SMs it used
    memory_busy: Share | None = None  # of the time: its memory was read or written
    sm_clock_mhz: float | None = None  # mean
    memory_used: int | None = None  # bytes after the last step, as nvidia-smi counts them
    traffic: GpuTraffic = GpuTraffic()


class NetworkUse(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of the interface of the process group, by all processes of the host."""

    interface: str
    sent: int
    received: int
    speed: float | None = None  # of the link, in bytes/s and direction; None: it has none, as lo


class RdmaUse(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of all active ports for RDMA (InfiniBand, RoCE), by all processes of the host."""

    ports: str  # "8 x InfiniBand 400 Gb/sec (4X NDR)"
    sent: int
    received: int
    waited: int | None = None  # ticks in which a port had data and sent none; adapters differ
    speed: float | None = None  # of all ports together, in bytes/s and direction


class RankUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The cores, the network and the GPU that one rank used in the period."""

    period_s: Annotated[float, Meta(gt=0)]
    cpu_s: float  # CPU time of the rank's process, all threads
    system_s: float  # the part of it in the kernel
    loaders_cpu_s: float | None = None  # of its child processes: the workers of its data loader
    network: NetworkUse | None = None  # only of rank 0, for all ranks: it counts the whole host
    rdma: RdmaUse | None = None  # as network; only of cases over several nodes
    gpu: GpuUse | None = None  # None: on the CPU tier
