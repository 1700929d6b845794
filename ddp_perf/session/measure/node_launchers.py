"""The launchers of hosts, Slurm and Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ddp_perf.core.case import Tier
from ddp_perf.core.environment import Cluster, LauncherName
from ddp_perf.launch.engine import Engine
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.engines.kubernetes import KubernetesEngine
from ddp_perf.launch.engines.pods import read_pod_template
from ddp_perf.launch.engines.slurm import SlurmEngine
from ddp_perf.launch.server_launcher import ServerLauncher


def make_node_launcher(
    name: LauncherName, cluster: Cluster, *, tier: Tier, on_wait: Callable[[str], None]
) -> ServerLauncher:
    """Return the launcher of this name, for cases of a tier on the nodes of the cluster."""
    engine: Engine
    if name == "slurm":
        engine = SlurmEngine(
            nodes=cluster.nodes,
            gpus_per_node=(cluster.ranks_per_node or 0) if tier == "gpu" else 0,
            interpreter=cluster.interpreter or sys.executable,
            srun_args=cluster.srun_args,
            salloc_args=cluster.salloc_args,
            on_wait=on_wait,
        )
    elif name == "kubernetes":
        assert cluster.pod_template is not None  # `check_cluster` has refused it
        template = read_pod_template(Path(cluster.pod_template))
        engine = KubernetesEngine(template, nodes=cluster.nodes, on_warn=on_wait)
    else:
        engine = Hosts(cluster.hosts, node_shell=cluster.node_shell, endpoint=cluster.rendezvous)
    return ServerLauncher(engine, each_node=cluster.each_node)
