"""GPUs as they were read: plain values. None: the card, driver or container does not say."""

from __future__ import annotations

import itertools
from typing import Literal

import msgspec

# As ``nvidia-smi topo`` names them, the nearest first: the same board; one PCIe switch; several;
# a host bridge; bridges of one NUMA node; between NUMA nodes.
PcieLevel = Literal["INT", "PIX", "PXB", "PHB", "NODE", "SYS"]
_LEVELS: tuple[PcieLevel, ...] = ("INT", "PIX", "PXB", "PHB", "NODE", "SYS")
UNKNOWN_LINK = "unknown"

# What may hold a GPU's clocks down, as NVML reports it at a moment.
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
# These halve the clocks at least (nvml.h), where a power cap or software's heat shaves some off.
HARDWARE_SLOWDOWNS: frozenset[Throttle] = frozenset(
    {"hardware slowdown", "heat (hardware)", "power brake"}
)
SOFTWARE_HEAT: Throttle = "heat (software)"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG slice of it: what stays as it is unless somebody changes it."""

    index: int  # NVML's; of a slice: that of its GPU
    uuid: str
    name: str
    compute_capability: tuple[int, int]
    mig: bool = False  # a slice
    memory: int | None = None  # bytes
    numa_node: int | None = None
    cores: tuple[int, ...] = ()  # near it; empty: not known
    power_limit_w: float | None = None
    power_default_w: float | None = None
    sm_clock_mhz: int | None = None  # that applications are given
    sm_clock_default_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    pcie_generation_max: int | None = None  # of the card and its slot together
    pcie_width_max: int | None = None
    persistence: bool | None = None
    ecc: bool | None = None


class GpuLink(msgspec.Struct, frozen=True, kw_only=True):
    """What connects two GPUs, by their indices."""

    first: int
    second: int
    nvlinks: int = 0  # between them, directly or through switches
    pcie: PcieLevel | None = None  # the way without NVLink

    @property
    def name(self) -> str:
        """As ``nvidia-smi topo -m`` writes it: ``NV12``, ``PHB``."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.pcie or UNKNOWN_LINK

    @property
    def slowness(self) -> tuple[int, int]:
        """Sorts links from fast to slow. One that is not known may be the slowest."""
        if self.nvlinks:
            return 0, -self.nvlinks
        return 1, _LEVELS.index(self.pcie) if self.pcie else len(_LEVELS)


class GpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs in the order in which ranks take them, what links them, and the driver."""

    gpus: tuple[Gpu, ...]
    links: tuple[GpuLink, ...] = ()
    driver: str | None = None
    cuda_driver: str | None = None  # the newest CUDA that the driver can run
    problem: str | None = None  # what NVML said where it could not tell

    @property
    def name(self) -> str:
        """The model; every model, where they differ."""
        return " + ".join(sorted({gpu.name for gpu in self.gpus}))

    def link(self, first: Gpu, second: Gpu) -> GpuLink:
        """What connects two of the GPUs."""
        ends = {first.index, second.index}
        for link in self.links:
            if {link.first, link.second} == ends:
                return link
        return GpuLink(first=first.index, second=second.index)

    @property
    def slowest_links(self) -> tuple[str, ...]:
        """The name of the slowest link among the first two, three, … GPUs."""
        names = []
        for count in range(2, len(self.gpus) + 1):
            pairs = itertools.combinations(self.gpus[:count], 2)
            slowest = max((self.link(*pair) for pair in pairs), key=lambda link: link.slowness)
            names.append(slowest.name)
        return tuple(names)

    @property
    def interconnect(self) -> str | None:
        """The slowest link of all: what a collective over all GPUs waits for. None: one GPU."""
        links = self.slowest_links
        return links[-1] if links else None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Computes on a GPU. ``pid`` is the host's, also where a container counts its own."""

    pid: int
    memory: int | None  # bytes


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment. Counters run since the driver was loaded."""

    uuid: str
    throttle: tuple[Throttle, ...] | None = (
        None  # what holds its clocks down; idling is no such thing
    )
    heat_s: float | None = None  # that heat held its clocks down: a counter
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    energy_j: float | None = None  # a counter
    ecc_corrected: int | None = None  # a counter
    ecc_uncorrected: int | None = None  # a counter
    pcie_generation: int | None = None  # falls while the GPU idles
    pcie_width: int | None = None
    memory_used: int | None = None  # bytes
    processes: tuple[GpuProcess, ...] | None = None
