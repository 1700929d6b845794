"""The options about machines: what starts ranks, on how many nodes, and on which ones."""

from __future__ import annotations

import pytest

from ddp_perf.core.cluster import LAUNCHERS, NODE_SHELL, Cluster
from ddp_perf.plugin.option_values import (
    parse_count,
    parse_endpoint,
    parse_hosts,
    parse_launcher,
    parse_node_shell,
)


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
    group.addoption("--ddp-nnodes", type=parse_count, metavar="N", help="number of nodes")
    group.addoption(
        "--ddp-nproc-per-node",
        type=parse_count,
        metavar="N",
        help="ranks of a node; a case of more ranks has several nodes, with as many ranks on each",
    )
    group.addoption(
        "--ddp-each-node",
        action="store_true",
        help="launch every case of one node on each node of the launcher, and judge each of them"
        " beside the others; the nodes must be alike, and the CPU tier needs --ddp-machine",
    )
    group.addoption(
        "--ddp-hosts",
        type=parse_hosts,
        default=(),
        metavar="A,B",
        help="hosts on which torchrun is started; the first one is this machine, or one like it",
    )
    group.addoption(
        "--ddp-node-shell",
        type=parse_node_shell,
        metavar="COMMAND",
        help="runs a command, its last argument, on the host {node} of --ddp-hosts (default:"
        f" {NODE_SHELL!r})",
    )
    group.addoption(
        "--ddp-rdzv-endpoint",
        type=parse_endpoint,
        metavar="HOST:PORT",
        help="where the nodes of torchrun meet: an address of the first host that all of them"
        " reach, and a free port (default: the first of --ddp-hosts, port 29400)",
    )
    group.addoption(
        "--ddp-pod-template",
        metavar="FILE",
        help="PodTemplate of Kubernetes: image, namespace, GPUs and nodes of each launch, in YAML",
    )


def read_cluster(config: pytest.Config) -> Cluster:
    hosts = config.getoption("ddp_hosts")
    return Cluster(
        nodes=config.getoption("ddp_nnodes") or len(hosts) or 1,
        ranks_per_node=config.getoption("ddp_nproc_per_node"),
        hosts=hosts,
        each_node=config.getoption("ddp_each_node"),
        node_shell=config.getoption("ddp_node_shell") or NODE_SHELL,
        endpoint=config.getoption("ddp_rdzv_endpoint"),
        pod_template=config.getoption("ddp_pod_template"),
    )
