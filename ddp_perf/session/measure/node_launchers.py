"""The launchers that start ranks through torchrun on hosts, Slurm, or Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ddp_perf.core.case import Tier
from ddp_perf.core.environment import Cluster, LauncherName
from ddp_perf.launch.nodes.engine import Engine
from ddp_perf.launch.nodes.kubernetes.engine import KubernetesEngine
from ddp_perf.launch.nodes.kubernetes.pods import read_pod_template
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from ddp_perf.launch.nodes.slurm import SlurmEngine
from ddp_perf.launch.nodes.torchrun import TorchrunEngine


def make_node_launcher(
    name: LauncherName, cluster: Cluster, *, tier: Tier, root: Path, on_wait: Callable[[str], None]
) -> NodeLauncher:
    """Return the launcher of this name, for cases of a tier on the nodes of the cluster."""
    engine: Engine
    if name == "torchrun":
        engine = TorchrunEngine(
            hosts=cluster.hosts, node_shell=cluster.node_shell, endpoint=cluster.rendezvous
        )
    elif name == "slurm":
        engine = SlurmEngine(
            nodes=cluster.nodes,
            gpus_per_node=(cluster.ranks_per_node or 0) if tier == "gpu" else 0,
            directory=root / "artifacts" / "slurm",
            srun_args=cluster.srun_args,
            salloc_args=cluster.salloc_args,
            on_wait=on_wait,
        )
    else:
        assert cluster.pod_template is not None  # `check_cluster` has refused it
        engine = KubernetesEngine(read_pod_template(Path(cluster.pod_template)), on_warn=on_wait)
    # The Python of an image is the one that its PATH has.
    interpreter = "python" if name == "kubernetes" else (cluster.interpreter or sys.executable)
    return NodeLauncher(
        engine, nodes=cluster.nodes, each_node=cluster.each_node, interpreter=interpreter
    )
