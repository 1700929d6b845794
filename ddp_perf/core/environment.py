"""The machines and the software of a measurement."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.errors import ConfigError

# The machine and the software of a measurement.


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


# The machines of a session, and what starts ranks on them.


LauncherName = Literal["forkserver", "ssh", "slurm", "kubernetes"]
LAUNCHERS: tuple[LauncherName, ...] = ("forkserver", "ssh", "slurm", "kubernetes")
# A host that does not answer would else take the whole deadline of a launch.
NODE_SHELL = "ssh -o ConnectTimeout=15 -o ServerAliveInterval=15 {node}"
_PORT = 29400  # torchrun's own for a rendezvous
_TORCHRUN = {"nodes": "nnodes", "ranks_per_node": "nproc_per_node", "endpoint": "rdzv_endpoint"}


class Cluster(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={**_TORCHRUN, "interpreter": "python"},
):
    """The nodes that a session may use, as a cluster file describes them.

    The keys of the file are these fields; those that torchrun has bear its names.
    """

    launcher: Annotated[
        LauncherName | None,
        Meta(description="What starts the ranks, instead of the suite's; --ddp-launcher wins."),
    ] = None
    nodes: Annotated[
        int, Meta(description="Number of nodes (default: that of hosts, or of the Slurm job).")
    ] = 1
    ranks_per_node: Annotated[
        int | None, Meta(description="Ranks of each node. Absent: every case has one node.")
    ] = None
    each_node: Annotated[
        bool,
        Meta(
            description="The nodes are alike: each launches every case of one node by itself, and"
            " is judged beside the others."
        ),
    ] = False
    hosts: Annotated[tuple[str, ...], Meta(description="Hosts of ssh, as in [a, b].")] = ()
    node_shell: Annotated[
        str, Meta(description="Runs a command, its last argument, on the host {node}.")
    ] = NODE_SHELL
    endpoint: Annotated[
        str | None,
        Meta(description="HOST:PORT where ranks of several hosts meet. Absent: the first host."),
    ] = None
    pod_template: Annotated[
        str | None,
        Meta(description="The PodTemplate of Kubernetes, a file beside this one."),
    ] = None
    interpreter: Annotated[
        str | None, Meta(description="The Python of Slurm's nodes. Absent: that of pytest.")
    ] = None
    srun_args: Annotated[
        tuple[str, ...], Meta(description="Further arguments of every job step of Slurm.")
    ] = ()
    salloc_args: Annotated[
        tuple[str, ...],
        Meta(description="Further arguments of Slurm's job, if pytest runs in none."),
    ] = ()

    @property
    def rendezvous(self) -> str:
        """The endpoint at which the ranks of several hosts meet, as every node reaches it."""
        return self.endpoint or (f"{self.hosts[0]}:{_PORT}" if self.hosts else "")


def check_cluster(cluster: Cluster, launchers: Collection[LauncherName]) -> None:
    """Raise ConfigError for keys that do not fit together, or to the suites' launchers."""
    nodes, hosts = cluster.nodes, cluster.hosts
    if hosts and "ssh" not in launchers:
        raise _refused("hosts: only ssh uses them; write launcher: ssh")
    if not hosts and "ssh" in launchers:
        raise _refused("launcher: ssh needs the names of hosts; write hosts: [a, b]")
    if hosts and nodes != len(hosts):
        raise _refused(f"nnodes: {nodes}, and there are {len(hosts)} hosts; leave one of them out")
    if not hosts and (cluster.endpoint or cluster.node_shell != NODE_SHELL):
        key = "rdzv_endpoint" if cluster.endpoint else "node_shell"
        raise _refused(f"{key}: it is for several hosts; write hosts: [a, b]")
    for key in ("interpreter", "srun_args", "salloc_args"):
        if getattr(cluster, key) and "slurm" not in launchers:
            key = "python" if key == "interpreter" else key
            raise _refused(f"{key}: only Slurm uses it; write launcher: slurm")
    if "kubernetes" in launchers and set(launchers) != {"kubernetes"}:
        raise ConfigError(
            "one session has one kind of machine, and here only some suites are launched on"
            " Kubernetes; write launcher: kubernetes in the file of --ddp-cluster, or choose suites"
            " with --ddp-config"
        )
    if ("kubernetes" in launchers) != (cluster.pod_template is not None):
        raise _refused("launcher: kubernetes and pod_template: FILE need each other")
    if nodes > 1 and cluster.ranks_per_node is None:
        raise _refused(f"{nodes} nodes need nproc_per_node, the ranks that each of them has")
    if cluster.each_node and nodes < 2:
        key = "hosts: [a, b]" if "ssh" in launchers else "nnodes"
        if set(launchers) == {"forkserver"}:
            key = "launcher: ssh and hosts: [a, b]"
        raise _refused(f"each_node: there is one node; write {key}")
    if nodes > 1 and set(launchers) == {"forkserver"}:
        raise _refused(
            f"nnodes: {nodes}: the forkserver starts ranks on this machine alone; write launcher:"
            " ssh, slurm or kubernetes"
        )


def _refused(reason: str) -> ConfigError:
    return ConfigError(f"--ddp-cluster: {reason}")


# A host that is unlike the others of its pool.


class OutlierHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host whose control differs from that of its pool by more than hosts do."""

    host: str
    pool: str
    ratio: float  # of its control to that of the other hosts
    hosts: int  # other hosts, of which the first session counts
    limit: float  # the largest ratio of a host that fits, to or from the pool's

    def __str__(self) -> str:
        slower, ratio = self.ratio > 1, max(self.ratio, 1 / self.ratio)
        by = f"{100 * (ratio - 1):.0f} % {'slower' if slower else 'faster'}"
        return (
            f"host {self.host} does not fit pool {self.pool}: its control is {by} than that of its"
            f" {self.hosts} other hosts, where up to {100 * (self.limit - 1):.0f} % is usual; take"
            " it out, or give it a pool of its own"
        )
