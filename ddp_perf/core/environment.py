"""The machine and the software of a measurement."""

from __future__ import annotations

import msgspec


class Environment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machine and versions in flat fields: one line of a baseline file.

    None: the field does not apply here, or could not be read.
    """

    accelerator: str  # "NVIDIA H200", or the processor's name
    accelerator_key: str  # names the baseline file
    accelerator_count: int  # GPUs, or cores this process may use
    interconnect: str | None  # the slowest link between two of the GPUs: "NV12", "PIX", … "SYS"
    links: str | None = None  # the slowest among the first 2, 3, … GPUs: "NV12 SYS SYS"
    gpu_memory: int | None = None  # bytes, of the smallest GPU
    power_limit_w: float | None = None  # of the GPU with the lowest limit
    sm_clock_mhz: int | None = None  # application clock, of the GPU with the lowest
    persistence: bool | None = None  # on all GPUs
    ecc: bool | None = None  # on any GPU
    cuda_visible_devices: str | None = None
    variables: dict[str, str] = {}  # environment variables that change how ranks train
    host: str
    pool: str | None = None  # of like hosts that share a baseline
    alike_nodes: int | None = None  # that were measured one by one; None: they were not
    nodes: int = 1  # the most nodes of a launch
    hosts: str | None = None  # of the nodes, by name; None: every launch was on one node
    os: str
    python: str
    torch: str
    cuda: str | None
    cudnn: str | None
    nccl: str | None
    driver: str | None
    blas: str | None
    commit: str | None = None

    def conditions(self) -> dict[str, str | int | float | None]:
        """Return every field and every environment variable, by name."""
        fields = msgspec.structs.asdict(self)
        del fields["variables"]
        return {**fields, **self.variables}

    @property
    def pooled_host(self) -> str | None:
        """The host, if it is one of a pool; None where the sessions are those of one machine.

        A session of nodes that are measured one by one is of all of them, whatever its host.
        """
        return self.host if self.pool is not None and self.alike_nodes is None else None

    def link_of(self, world_size: int) -> str | None:
        """Return the slowest link among the first `world_size` GPUs, or None if it is unknown."""
        links = (self.links or "").split()
        return links[world_size - 2] if 2 <= world_size <= len(links) + 1 else None
