"""The machines of a session, and what starts ranks on them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from ddp_perf.errors import ConfigError

LauncherName = Literal["forkserver", "torchrun", "slurm", "kubernetes"]
LAUNCHERS: tuple[LauncherName, ...] = ("forkserver", "torchrun", "slurm", "kubernetes")
# A host that does not answer would else take the whole deadline of a launch.
NODE_SHELL = "ssh -o ConnectTimeout=15 -o ServerAliveInterval=15 {node}"
_PORT = 29400  # torchrun's own for a c10d rendezvous
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

    launcher: LauncherName | None = None  # None: that of each suite
    nodes: int = 1
    ranks_per_node: int | None = None  # None: every case has one node
    each_node: bool = False  # they are alike, and each of them launches every case by itself
    hosts: tuple[str, ...] = ()  # of torchrun; empty: this machine
    node_shell: str = NODE_SHELL  # runs a command, its last argument, on the host {node}
    endpoint: str | None = None  # host:port of the rendezvous; None: on the first host
    pod_template: str | None = None  # file that describes the pods of Kubernetes
    interpreter: str | None = None  # the Python of Slurm's nodes; None: that of pytest
    srun_args: tuple[str, ...] = ()  # further arguments of every job step
    salloc_args: tuple[str, ...] = ()  # further arguments of the job, if pytest runs in none

    @property
    def rendezvous(self) -> str:
        """The endpoint at which the nodes of torchrun meet, as every node reaches it."""
        return self.endpoint or (f"{self.hosts[0]}:{_PORT}" if self.hosts else "")


def check_cluster(cluster: Cluster, launchers: Collection[LauncherName]) -> None:
    """Raise ConfigError for keys that do not fit together, or to the suites' launchers."""
    nodes, hosts = cluster.nodes, cluster.hosts
    if hosts and "torchrun" not in launchers:
        raise _refused("hosts: only torchrun uses them; write launcher: torchrun")
    if hosts and nodes != len(hosts):
        raise _refused(f"nnodes: {nodes}, and there are {len(hosts)} hosts; leave one of them out")
    if not hosts and nodes > 1 and "torchrun" in launchers:
        raise _refused(f"nnodes: {nodes}: torchrun needs their names in hosts")
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
        key = "hosts: [a, b]" if "torchrun" in launchers else "nnodes"
        if set(launchers) == {"forkserver"}:
            key = "launcher: torchrun and hosts: [a, b]"
        raise _refused(f"each_node: there is one node; write {key}")
    if nodes > 1 and set(launchers) == {"forkserver"}:
        raise _refused(
            f"nnodes: {nodes}: the forkserver starts ranks on this machine alone; write launcher:"
            " torchrun, slurm or kubernetes"
        )


def _refused(reason: str) -> ConfigError:
    return ConfigError(f"--ddp-cluster: {reason}")
