"""The options about machines: what starts ranks, and the file that describes a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_perf.config.cluster_file import read_cluster_file
from ddp_perf.core.cluster import LAUNCHERS, Cluster
from ddp_perf.errors import ConfigError
from ddp_perf.plugin.option_values import parse_launcher


def add_cluster_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--ddp-launcher",
        type=parse_launcher,
        metavar="NAME",
        help=f"what starts the ranks of each launch, instead of the suite's: {', '.join(LAUNCHERS)}"
        " (default: forkserver, which forks them on this machine); or replay:FILE, which launches"
        " nothing: the tests get the session of a results file, as if on the machine that it was"
        " measured on",
    )
    group.addoption(
        "--ddp-cluster",
        type=Path,
        metavar="FILE",
        help="YAML file that describes several nodes, and how ranks are started on them: launcher,"
        " nnodes, nproc_per_node, hosts, srun_args, pod_template and others (docs/clusters.md)",
    )


def read_cluster(config: pytest.Config) -> Cluster:
    """Return the cluster of the file, or this machine alone. Raises UsageError."""
    path: Path | None = config.getoption("ddp_cluster")
    if path is None:
        return Cluster()
    try:
        return read_cluster_file(path, launcher=config.getoption("ddp_launcher"))
    except ConfigError as error:
        raise pytest.UsageError(f"--ddp-cluster: {error}") from None
