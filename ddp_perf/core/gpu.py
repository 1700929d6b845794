"""Readings of GPUs, as plain values. None: the card, driver or container does not report it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

# The names of ``nvidia-smi topo``, the nearest first: the same board; one PCIe switch; several
# switches; a host bridge; bridges of one NUMA node; between NUMA nodes.
PcieLevel = Literal["INT", "PIX", "PXB", "PHB", "NODE", "SYS"]
_LEVELS: tuple[PcieLevel, ...] = ("INT", "PIX", "PXB", "PHB", "NODE", "SYS")
UNKNOWN_LINK = "unknown"

# Reasons for reduced clocks of a GPU, as NVML reports them at one moment.
Throttle = Literal[
    "application clocks",
    "power cap",
    "hardware slowdown",
    "sync boost",
    "heat (software)",
    "heat (hardware)",
    "power brake",
    "display clocks",
]
# These at least halve the clocks (nvml.h); a power cap or software heat reduces them by less.
HARDWARE_SLOWDOWNS: frozenset[Throttle] = frozenset(
    {"hardware slowdown", "heat (hardware)", "power brake"}
)
HEAT: frozenset[Throttle] = frozenset({"heat (software)", "heat (hardware)"})
POWER_CAP: Throttle = "power cap"
# The clocks that are compared, by the names of their readings.
ClockName = Literal["sm_clock_mhz", "memory_clock_mhz"]
CLOCKS: tuple[ClockName, ...] = get_args(ClockName)


# The registration of a GPU with the switches of its NVLinks, which the fabric manager completes.
# Before, CUDA fails with error 802.
FabricState = Literal["not started", "in progress", "completed"]
ComputeMode = Literal["default", "prohibited", "exclusive process"]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG slice of it: properties that change only if somebody changes them."""

    index: int  # NVML's index; a slice has the index of its GPU
    uuid: str
    name: str
    compute_capability: tuple[int, int]
    mig: bool = False  # True: a slice
    memory: int | None = None  # bytes
    numa_node: int | None = None
    cores: tuple[int, ...] = ()  # near it; empty: unknown
    power_limit_w: float | None = None
    power_default_w: float | None = None
    sm_clock_mhz: int | None = None  # the application clock
    sm_clock_default_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    pcie_generation_max: int | None = None  # of the card and its slot together
    pcie_width_max: int | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    fabric: FabricState | None = None  # None: it is on no switch, or the driver is older
    compute_mode: ComputeMode | None = None


class GpuLink(msgspec.Struct, frozen=True, kw_only=True):
    """The link between two GPUs, given by their indices."""

    first: int
    second: int
    nvlinks: int = 0  # number of NVLinks, directly or through switches
    pcie: PcieLevel | None = None  # the path without NVLink
    # Each GPU may access the memory of the other. False: copies go through the host's memory.
    peer_access: bool | None = None

    @property
    def name(self) -> str:
        """The name in ``nvidia-smi topo -m``: ``NV12``, ``PHB``."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.pcie or UNKNOWN_LINK

    @property
    def slowness(self) -> tuple[int, int]:
        return link_slowness(self.name)


def link_slowness(name: str) -> tuple[int, int]:
    """Return a key that sorts links by name, the fastest first. An unknown one is the slowest."""
    if name.startswith("NV"):
        return 0, -int(name.removeprefix("NV"))
    return 1, _LEVELS.index(name) if name in _LEVELS else len(_LEVELS)


class NodeHardware(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node's GPUs and networks. The weakest GPU decides: each step waits for it."""

    links: str | None = None  # the slowest among the first 2, 3, … GPUs: "NV12 SYS SYS"
    peer_access: str | None = None  # of the first 2, 3, … GPUs to each other: "yes yes no ?"
    gpu_memory: int | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    persistence: bool | None = None  # on all GPUs
    ecc: bool | None = None  # on any GPU
    networks: str | None = None  # for RDMA


class GpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs in the order of the ranks, their links, and the driver."""

    gpus: tuple[Gpu, ...]
    links: tuple[GpuLink, ...] = ()
    driver: str | None = None
    cuda_driver: str | None = None  # the newest CUDA that the driver can run
    problem: str | None = None  # NVML's error; None: every GPU was read

    @property
    def name(self) -> str:
        """The model of the GPUs, or all models if they differ."""
        return " + ".join(sorted({gpu.name for gpu in self.gpus}))

    def link(self, first: Gpu, second: Gpu) -> GpuLink:
        """Return the link between two of the GPUs; its name is "unknown" if it was not read."""
        ends = {first.index, second.index}
        for link in self.links:
            if {link.first, link.second} == ends:
                return link
        return GpuLink(first=first.index, second=second.index)

    @property
    def slowest_links(self) -> tuple[str, ...]:
        """The name of the slowest link among the first two, three, … GPUs."""
        return tuple(
            max(links, key=lambda link: link.slowness).name for links in self._links_of_first()
        )

    @property
    def peer_access(self) -> tuple[bool | None, ...]:
        """It is True for the first two, three, … GPUs if all may access each other's memory."""
        known = [{link.peer_access for link in links} for links in self._links_of_first()]
        return tuple(False if False in each else None if None in each else True for each in known)

    def _links_of_first(self) -> Iterator[list[GpuLink]]:
        """Yield the links among the first two, three, … GPUs."""
        for count in range(2, len(self.gpus) + 1):
            yield [self.link(*pair) for pair in itertools.combinations(self.gpus[:count], 2)]

    @property
    def interconnect(self) -> str | None:
        """The slowest link, which limits a collective over all GPUs. None: fewer than two GPUs."""
        links = self.slowest_links
        return links[-1] if links else None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that computes on a GPU. ``pid`` is the host's, even inside a container."""

    pid: int
    memory: int | None  # bytes


class GpuLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The clocks, the power and the heat of one GPU at one moment, while it computes."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[Throttle, ...] | None = None  # reasons for reduced clocks
    pcie_generation: int | None = None  # lower while the GPU is idle
    pcie_width: int | None = None

    @property
    def pcie(self) -> tuple[int, int] | None:
        """Generation and lanes of its link now, or None if one of them is unknown."""
        if self.pcie_generation is None or self.pcie_width is None:
            return None
        return self.pcie_generation, self.pcie_width


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one GPU at one moment. Counters start when the driver is loaded."""

    uuid: str
    throttle: tuple[Throttle, ...] | None = None  # reasons for reduced clocks, without idling
    heat_s: float | None = None  # time in which heat reduced its clocks: a counter
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    energy_j: float | None = None  # a counter
    ecc_corrected: int | None = None  # a counter
    ecc_uncorrected: int | None = None  # a counter
    remap_pending: bool | None = None  # of broken rows of its memory, at the next reset
    pcie_generation: int | None = None  # lower while the GPU is idle
    pcie_width: int | None = None
    memory_used: int | None = None  # bytes
    processes: tuple[GpuProcess, ...] | None = None
