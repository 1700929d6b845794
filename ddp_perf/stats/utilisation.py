"""The utilisation of a case: rates and shares, as medians over its launches."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ddp_perf.core.launch import LaunchResult, RankResult
from ddp_perf.core.utilisation import NetworkUse, RankUtilisation, RdmaUse

Part = TypeVar("Part")
_NAMES = ("interface", "rdma_ports")  # not medians, but those of the first launch that has one


class CaseUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a machine by a case, of a rank or a GPU: the mean over all of them.

    None: unknown for some of them. Of a link the busier direction counts.
    """

    cpu_cores: float | None = None  # CPU seconds of a rank's process in a second
    system_cores: float | None = None  # the part of them in the kernel
    loader_cores: float | None = None  # CPU seconds of a rank's loader workers in a second
    cores_share: float | None = None  # of all cores that the ranks may use: ranks and loaders
    interface: str | None = None
    network_bytes_per_s: float | None = None  # of the whole host
    network_share: float | None = None  # of the link's speed
    rdma_ports: str | None = None
    rdma_bytes_per_s: float | None = None  # of the whole host, over all ports
    rdma_share: float | None = None  # of their speed
    rdma_waits_per_s: float | None = None  # ticks in which a port had data and sent none
    gpu_busy: float | None = None
    gpu_memory_busy: float | None = None
    gpu_memory_used: float | None = None  # bytes, of the GPU with the most
    sm_clock_mhz: float | None = None
    pcie_bytes_per_s: float | None = None  # of a GPU
    nvlink_bytes_per_s: float | None = None  # of a GPU

    def known(self) -> dict[str, float | str]:
        """Return the known figures by name."""
        fields = msgspec.structs.asdict(self)
        return {name: figure for name, figure in fields.items() if figure is not None}


def utilisation_figures(launches: Sequence[LaunchResult]) -> CaseUtilisation:
    """Return the medians over the launches that have a figure."""
    each = [_of_launch(launch) for launch in launches]
    figures: dict[str, Any] = {}
    for name in CaseUtilisation.__struct_fields__:
        known = [value for one in each if (value := getattr(one, name)) is not None]
        if known:
            figures[name] = known[0] if name in _NAMES else statistics.median(known)
    return CaseUtilisation(**figures)


def _of_launch(launch: LaunchResult) -> CaseUtilisation:
    used = [rank.utilisation for rank in launch.ranks if rank.utilisation is not None]
    if len(used) < len(launch.ranks):
        return CaseUtilisation()
    gpus = [one.gpu for one in used if one.gpu is not None]
    memory = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    return CaseUtilisation(
        cpu_cores=_mean(used, lambda one: one.cpu_s / one.period_s),
        system_cores=_mean(used, lambda one: one.system_s / one.period_s),
        loader_cores=_mean(used, _loader_cores),
        cores_share=_cores_share(launch.ranks, used),
        **(_of_network(used[0].network, used[0].period_s) if used[0].network else {}),
        **(_of_rdma(used[0].rdma, used[0].period_s) if used[0].rdma else {}),
        gpu_busy=_mean(gpus, lambda gpu: gpu.busy),
        gpu_memory_busy=_mean(gpus, lambda gpu: gpu.memory_busy),
        gpu_memory_used=max(memory, default=None),
        sm_clock_mhz=_mean(gpus, lambda gpu: gpu.sm_clock_mhz),
        pcie_bytes_per_s=_mean(used, lambda one: _link_rate(one, "pcie")),
        nvlink_bytes_per_s=_mean(used, lambda one: _link_rate(one, "nvlink")),
    )


def _loader_cores(used: RankUtilisation) -> float | None:
    return None if used.loaders_cpu_s is None else used.loaders_cpu_s / used.period_s


def _cores_share(ranks: Sequence[RankResult], each: Sequence[RankUtilisation]) -> float | None:
    """Return the share of their cores that all ranks and loaders use; None: unknown."""
    loaders = [_loader_cores(used) for used in each]
    cores = {core for rank in ranks for core in rank.placement.cores}
    if None in loaders or not cores:
        return None
    own = sum(used.cpu_s / used.period_s for used in each)
    return min((own + sum(filter(None, loaders))) / len(cores), 1.0)


def _of_network(network: NetworkUse, period_s: float) -> dict[str, Any]:
    rate, share = _rate_and_share(network, period_s)
    return {
        "interface": network.interface,
        "network_bytes_per_s": rate,
        "network_share": share,
    }


def _of_rdma(rdma: RdmaUse, period_s: float) -> dict[str, Any]:
    rate, share = _rate_and_share(rdma, period_s)
    return {
        "rdma_ports": rdma.ports,
        "rdma_bytes_per_s": rate,
        "rdma_share": share,
        "rdma_waits_per_s": None if rdma.waited is None else rdma.waited / period_s,
    }


def _rate_and_share(used: NetworkUse | RdmaUse, period_s: float) -> tuple[float, float | None]:
    rate = max(used.sent, used.received) / period_s
    return rate, None if used.speed is None else min(rate / used.speed, 1.0)


def _link_rate(used: RankUtilisation, link: str) -> float | None:
    """Return the bytes/s of a GPU's link in the busier direction, or None if one is unknown."""
    if used.gpu is None:
        return None
    sent = getattr(used.gpu.traffic, f"{link}_sent")
    received = getattr(used.gpu.traffic, f"{link}_received")
    return None if None in (sent, received) else max(sent, received) / used.period_s


def _mean(parts: Sequence[Part], figure: Callable[[Part], float | None]) -> float | None:
    """Return the mean over all parts, or None if one of them has no figure."""
    known = [value for part in parts if (value := figure(part)) is not None]
    return statistics.fmean(known) if known and len(known) == len(parts) else None
