"""Where a measurement was made."""

from __future__ import annotations

import msgspec


class Environment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machine and versions, flat: one line of a baseline file. None: does not apply here, or
    could not be read.
    """

    accelerator: str  # "NVIDIA H200", or the processor's name
    accelerator_key: str  # names the baseline file
    accelerator_count: int  # GPUs, or cores this process may use
    interconnect: str | None  # the slowest link between two of the GPUs: "NV12", "PIX", … "SYS"
    links: str | None = None  # the same among the first two, three, … of them: "NV12 SYS SYS"
    gpu_memory: int | None = None  # bytes, of the smallest GPU
    power_limit_w: float | None = None  # of the GPU with the lowest
    sm_clock_mhz: int | None = None  # that applications are given, of the GPU with the lowest
    persistence: bool | None = None  # on all GPUs
    ecc: bool | None = None  # on any
    cuda_visible_devices: str | None = None
    variables: dict[str, str] = {}  # that change how ranks train, as the process had them
    host: str
    os: str
    python: str
    torch: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    driver: str | None
    blas: str | None
    commit: str | None

    def conditions(self) -> dict[str, str | int | float | None]:
        """Every field by its name, and every variable by its own."""
        fields = msgspec.structs.asdict(self)
        del fields["variables"]
        return {**fields, **self.variables}

    def link_of(self, world_size: int) -> str | None:
        """The slowest link among so many ranks, which take the GPUs in order; None: not known."""
        links = (self.links or "").split()
        return links[world_size - 2] if 2 <= world_size <= len(links) + 1 else None
