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


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a session may use, as the command line describes them."""

    nodes: int = 1
    ranks_per_node: int | None = None  # None: every case has one node
    hosts: tuple[str, ...] = ()  # of torchrun; empty: this machine
    node_shell: str = NODE_SHELL  # runs a command, its last argument, on the host {node}
    each_node: bool = False  # they are alike, and each of them launches every case by itself
    endpoint: str | None = None  # host:port of the rendezvous; None: on the first host
    pod_template: str | None = None  # file that describes the pods of Kubernetes

    @property
    def rendezvous(self) -> str:
        """The endpoint at which the nodes of torchrun meet, as every node reaches it."""
        return self.endpoint or (f"{self.hosts[0]}:{_PORT}" if self.hosts else "")


def check_cluster(cluster: Cluster, launchers: Collection[LauncherName]) -> None:
    """Raise ConfigError for options that do not fit together, or to the suites' launchers."""
    nodes, hosts = cluster.nodes, cluster.hosts
    if hosts and "torchrun" not in launchers:
        raise ConfigError("--ddp-hosts: only torchrun uses them; add --ddp-launcher torchrun")
    if hosts and nodes != len(hosts):
        raise ConfigError(f"--ddp-nnodes {nodes}: --ddp-hosts has {len(hosts)}; leave one out")
    if not hosts and nodes > 1 and "torchrun" in launchers:
        raise ConfigError(f"--ddp-nnodes {nodes}: torchrun needs their names in --ddp-hosts")
    if not hosts and (cluster.endpoint or cluster.node_shell != NODE_SHELL):
        option = "--ddp-rdzv-endpoint" if cluster.endpoint else "--ddp-node-shell"
        raise ConfigError(f"{option}: it is for several hosts; add --ddp-hosts a,b")
    if "kubernetes" in launchers and set(launchers) != {"kubernetes"}:
        raise ConfigError(
            "one session has one kind of machine, and here only some suites are launched on"
            " Kubernetes; add --ddp-launcher kubernetes, or choose suites with --ddp-config"
        )
    if ("kubernetes" in launchers) != (cluster.pod_template is not None):
        raise ConfigError(
            "--ddp-launcher kubernetes and --ddp-pod-template FILE need each other;"
            " ci/templates/kubernetes/pod.yaml is an example of the file"
        )
    if nodes > 1 and cluster.ranks_per_node is None:
        raise ConfigError(
            f"{'--ddp-hosts' if hosts else '--ddp-nnodes'}: {nodes} nodes need"
            " --ddp-nproc-per-node, the ranks that each of them has"
        )
    if cluster.each_node and nodes < 2:
        option = "--ddp-nnodes N"
        if "torchrun" in launchers:
            option = "--ddp-hosts a,b"
        elif set(launchers) == {"forkserver"}:
            option = "--ddp-launcher torchrun --ddp-hosts a,b"
        raise ConfigError(f"--ddp-each-node: there is one node; add {option}")
    if nodes > 1 and set(launchers) == {"forkserver"}:
        raise ConfigError(
            f"--ddp-nnodes {nodes}: the forkserver starts ranks on this machine alone; add"
            " --ddp-launcher torchrun, slurm or kubernetes"
        )
