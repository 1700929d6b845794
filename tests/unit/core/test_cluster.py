"""Options about machines that do not fit together."""

from __future__ import annotations

import pytest

from ddp_perf.core.cluster import Cluster, check_cluster
from ddp_perf.errors import ConfigError

EACH = {"each_node": True}
HOSTS = ("a", "b")
POD = {"pod_template": "pod.yaml"}


@pytest.mark.parametrize(
    ("fields", "launchers", "words"),
    [
        ({"hosts": HOSTS, "nodes": 2}, {"forkserver"}, "--ddp-hosts: only torchrun uses them"),
        ({"hosts": HOSTS, "nodes": 3}, {"torchrun"}, "--ddp-nnodes 3: --ddp-hosts has 2"),
        ({"nodes": 2, "ranks_per_node": 8}, {"torchrun"}, "torchrun needs their names"),
        ({"hosts": HOSTS, "nodes": 2}, {"torchrun"}, "--ddp-hosts: 2 nodes need --ddp-nproc"),
        ({"nodes": 2}, {"slurm"}, "--ddp-nnodes: 2 nodes need --ddp-nproc-per-node"),
        ({"nodes": 2, "ranks_per_node": 8}, {"forkserver"}, "on this machine alone; add --ddp-la"),
        ({"endpoint": "a:1"}, {"torchrun"}, "--ddp-rdzv-endpoint: it is for several hosts"),
        ({"node_shell": "rsh {node}"}, {"torchrun"}, "--ddp-node-shell: it is for several hosts"),
        ({}, {"kubernetes"}, "--ddp-pod-template FILE need each other"),
        (POD, {"torchrun"}, "--ddp-pod-template FILE need each other"),
        (POD, {"kubernetes", "forkserver"}, "one session has one kind of machine"),
        (EACH, {"forkserver"}, "--ddp-each-node: .* --ddp-launcher torchrun --ddp-hosts a,b"),
        (EACH, {"slurm"}, "--ddp-each-node: there is one node; add --ddp-nnodes N"),
        (EACH, {"torchrun"}, "--ddp-each-node: there is one node; add --ddp-hosts a,b"),
    ],
)
def test_options_that_do_not_fit_are_refused(fields, launchers, words):
    with pytest.raises(ConfigError, match=words):
        check_cluster(Cluster(**fields), launchers)


@pytest.mark.parametrize(
    ("fields", "launchers"),
    [
        ({}, {"forkserver"}),
        ({}, {"torchrun"}),
        ({"nodes": 2, "ranks_per_node": 8}, {"slurm", "forkserver"}),
        ({"nodes": 2, "ranks_per_node": 8, **EACH}, {"slurm"}),
        ({"nodes": 2, "ranks_per_node": 8, **POD}, {"kubernetes"}),
        ({"hosts": HOSTS, "nodes": 2, "ranks_per_node": 8, "endpoint": "a:1"}, {"torchrun"}),
    ],
)
def test_options_that_fit_are_accepted(fields, launchers):
    check_cluster(Cluster(**fields), launchers)


def test_the_nodes_meet_on_the_first_host_unless_an_endpoint_is_given():
    assert Cluster(hosts=HOSTS).rendezvous == "a:29400"
    assert Cluster(hosts=HOSTS, endpoint="10.0.0.1:7").rendezvous == "10.0.0.1:7"
    assert Cluster().rendezvous == ""
