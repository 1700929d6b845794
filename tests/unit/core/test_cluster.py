"""Keys of a cluster that do not fit together."""

from __future__ import annotations

import pytest

from ddp_perf.core.environment import Cluster, check_cluster
from ddp_perf.errors import ConfigError

EACH = {"each_node": True}
HOSTS = ("a", "b")
POD = {"pod_template": "pod.yaml"}


@pytest.mark.parametrize(
    ("fields", "launchers", "words"),
    [
        ({"hosts": HOSTS, "nodes": 2}, {"forkserver"}, "hosts: only ssh uses them"),
        ({"hosts": HOSTS, "nodes": 3}, {"ssh"}, "nnodes: 3, and there are 2 hosts"),
        ({"nodes": 2, "ranks_per_node": 8}, {"ssh"}, "ssh needs the names of hosts"),
        ({"hosts": HOSTS, "nodes": 2}, {"ssh"}, "2 nodes need nproc_per_node"),
        ({"nodes": 2}, {"slurm"}, "2 nodes need nproc_per_node"),
        ({"nodes": 2, "ranks_per_node": 8}, {"forkserver"}, "on this machine alone; write la"),
        ({"endpoint": "a:1"}, {"forkserver"}, "rdzv_endpoint: it is for several hosts"),
        ({"node_shell": "rsh {node}"}, {"forkserver"}, "node_shell: it is for several hosts"),
        ({}, {"kubernetes"}, "pod_template: FILE need each other"),
        (POD, {"slurm"}, "pod_template: FILE need each other"),
        ({"srun_args": ("-x",)}, {"forkserver"}, "srun_args: only Slurm uses it"),
        ({"interpreter": "python3"}, {"forkserver"}, "python: only Slurm uses it"),
        (POD, {"kubernetes", "forkserver"}, "one session has one kind of machine"),
        (EACH, {"forkserver"}, "each_node: .* launcher: ssh and hosts: "),
        (EACH, {"slurm"}, "each_node: there is one node; write nnodes"),
        ({"hosts": ("a",), **EACH}, {"ssh"}, "each_node: there is one node; write hosts: "),
    ],
)
def test_keys_that_do_not_fit_are_refused(fields, launchers, words):
    with pytest.raises(ConfigError, match=words):
        check_cluster(Cluster(**fields), launchers)


@pytest.mark.parametrize(
    ("fields", "launchers"),
    [
        ({}, {"forkserver"}),
        ({"hosts": ("a",)}, {"ssh"}),
        ({"nodes": 2, "ranks_per_node": 8}, {"slurm", "forkserver"}),
        ({"nodes": 2, "ranks_per_node": 8, **EACH}, {"slurm"}),
        ({"nodes": 2, "ranks_per_node": 8, **POD}, {"kubernetes"}),
        ({"hosts": HOSTS, "nodes": 2, "ranks_per_node": 8, "endpoint": "a:1"}, {"ssh"}),
    ],
)
def test_keys_that_fit_are_accepted(fields, launchers):
    check_cluster(Cluster(**fields), launchers)


def test_the_nodes_meet_on_the_first_host_unless_an_endpoint_is_given():
    assert Cluster(hosts=HOSTS).rendezvous == "a:29400"
    assert Cluster(hosts=HOSTS, endpoint="10.0.0.1:7").rendezvous == "10.0.0.1:7"
    assert Cluster().rendezvous == ""
