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
    peer_access: str | None = None  # of the first 2, 3, … GPUs to each other: "yes yes no ?"
    pcie: str | None = None  # generation x lanes of each GPU under load: "4x16 3x8"
    networks: str | None = None  # of the nodes, for RDMA: "8 x InfiniBand 400 Gb/sec (4X NDR)"
    gpu_memory: int | None = None  # bytes, of the smallest GPU
    power_limit_w: float | None = None  # of the GPU with the lowest limit
    sm_clock_mhz: int | None = None  # application clock, of the GPU with the lowest
    persistence: bool | None = None  # on all GPUs
    ecc: bool | None = None  # on any GPU
    cuda_visible_devices: str | None = None
    variables: dict[str, str] = {}  # environment variables that change how ranks train
    # By "8 ranks" or "16 ranks on 2 nodes": what NCCL sends through, as "P2P/CUMEM NET/IB/GDRDMA".
    transports: dict[str, str] = {}
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
    branch: str | None = None  # None: no branch is checked out, and no CI system names one
    # Git's name of all files together; of equal names the files are equal. None: it is unknown.
    tree: str | None = None
    packages: dict[str, str] = {}  # versions of those that ranks import, and of what these need

    def conditions(self) -> dict[str, str | int | float | None]:
        """Return every field, environment variable, package and transport, by name."""
        fields = msgspec.structs.asdict(self)
        for name in ("variables", "transports", "packages", "tree", "branch"):
            del fields[name]
        used = {f"NCCL's transport of {ranks}": name for ranks, name in self.transports.items()}
        packages = {f"package {name}": version for name, version in self.packages.items()}
        return {**fields, **self.variables, **packages, **used}

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

    def peer_access_of(self, world_size: int) -> str | None:
        """Return "yes" or "no" for the first `world_size` GPUs, or None if it is unknown."""
        each = (self.peer_access or "").split()
        found = each[world_size - 2] if 2 <= world_size <= len(each) + 1 else "?"
        return None if found == "?" else found

    def pcie_of(self, world_size: int) -> str | None:
        """Return the slowest link of the first `world_size` GPUs under load, or None if unknown."""
        each = (self.pcie or "").split()[:world_size]
        if len(each) < world_size or "?" in each:
            return None
        return min(each, key=_pcie_rate)


def _pcie_rate(link: str) -> int:
    """Return a number in proportion to the bandwidth: each generation doubles that of a lane."""
    generation, lanes = map(int, link.split("x"))
    return lanes << generation
