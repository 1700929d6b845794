"""The utilisation of a rank between two samples: what it used, and the energy of its GPU."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ddp_perf.core.launch import GpuTraffic, NetworkUse, RankUtilisation, RdmaUse
from ddp_perf.core.metric import SHORTEST_ENERGY_S
from ddp_perf.system.host.network import RdmaCounters
from ddp_perf.telemetry.conditions import increase
from ddp_perf.telemetry.sample import SHORTEST_S, Sample

LinkUse = TypeVar("LinkUse", NetworkUse, RdmaUse)


def utilisation(before: Sample, after: Sample) -> RankUtilisation:
    """Return what one rank used between two samples."""
    gpu = after.gpu_use
    if gpu is not None and before.gpu is not None and after.gpu is not None:
        traffic = _traffic(before.gpu.traffic, after.gpu.traffic)
        gpu = msgspec.structs.replace(gpu, traffic=traffic)
    return RankUtilisation(
        period_s=after.used_at_s - before.used_at_s,
        cpu_s=after.cpu_s - before.cpu_s,
        system_s=after.system_s - before.system_s,
        loaders_cpu_s=_children_s(before, after),
        network=_carried(before.network, after.network),
        rdma=_rdma(before.rdma, after.rdma),
        gpu=gpu,
    )


def energy_j(before: Sample, after: Sample) -> float | None:
    """Return the energy of the rank's GPU between two samples in joules.

    None: the GPU does not count it, the time is too short, or the rank has none.
    """
    if before.gpu is None or after.gpu is None or after.at_s - before.at_s < SHORTEST_ENERGY_S:
        return None
    joules = increase(before.gpu.energy_j, after.gpu.energy_j)
    return joules if joules is not None and joules > 0 else None  # a reload resets the counter


def _children_s(before: Sample, after: Sample) -> float | None:
    """Return the CPU seconds of the children; None: unknown, or too few ticks for a figure."""
    seconds = increase(before.children_s, after.children_s)
    if seconds is None or (seconds > 0 and after.at_s - before.at_s < SHORTEST_S):
        return None
    return max(0.0, seconds)  # an ended child is counted more exactly than a running one


def _carried(before: LinkUse | None, after: LinkUse | None) -> LinkUse | None:
    """Return the bytes in between; None: unknown, or somebody made the link anew."""
    if before is None or after is None:
        return None
    sent, received = after.sent - before.sent, after.received - before.received
    if sent < 0 or received < 0:
        return None
    return msgspec.structs.replace(after, sent=sent, received=received)


def _rdma(before: RdmaCounters | None, after: RdmaCounters | None) -> RdmaUse | None:
    if before is None or after is None or before.ports != after.ports:
        return None  # a port came up or went down, with all that it ever counted
    use = _carried(before.use, after.use)
    waited = _further(before.use.waited, after.use.waited)
    return None if use is None else msgspec.structs.replace(use, waited=waited)


def _traffic(before: GpuTraffic, after: GpuTraffic) -> GpuTraffic:
    names = GpuTraffic.__struct_fields__
    return GpuTraffic(
        **{name: _further(getattr(before, name), getattr(after, name)) for name in names}
    )


def _further(before: int | None, after: int | None) -> int | None:
    """Return the increase of a counter; None: unknown, or it began again."""
    return None if before is None or after is None or after < before else after - before
