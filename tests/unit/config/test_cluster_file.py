"""Cluster files: what a file describes, and the key of each mistake."""

from __future__ import annotations

import pytest

from ddp_perf.config.cluster_file import read_cluster_file
from ddp_perf.core.environment import Cluster, check_cluster
from ddp_perf.errors import ConfigError
from tests.projects import REPOSITORY

IN_A_JOB = {"SLURM_JOB_NUM_NODES": "4"}
CONTAINER = "--container-image=nvcr.io/nvidia/pytorch:26.10-py3"


@pytest.fixture
def read(tmp_path):
    def read(text, environ=None):
        path = tmp_path / "cluster.yaml"
        path.write_text(text, encoding="utf-8")
        return read_cluster_file(path, environ or {})

    return read


def test_hosts_are_the_nodes(read):
    cluster = read("launcher: ssh\nhosts: [a, b]\nnproc_per_node: 8\n")

    assert (cluster.nodes, cluster.ranks_per_node, cluster.rendezvous) == (2, 8, "a:29400")
    program, *options_of_ssh, host = cluster.node_shell.split()
    assert (program, host) == ("ssh", "{node}")
    assert {"ConnectTimeout=15", "ServerAliveInterval=15"} <= {*options_of_ssh}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("launcher: slurm", 4),
        ("launcher: slurm\nnnodes: 2", 2),
        ("launcher: ssh", 1),  # pytest is in the job by chance
    ],
)
def test_the_nodes_of_slurm_are_those_of_the_job_unless_stated(read, text, nodes):
    assert read(text, IN_A_JOB).nodes == nodes


def test_the_launcher_of_the_command_line_comes_first(read, tmp_path):
    read("nproc_per_node: 8")  # writes the file

    path = tmp_path / "cluster.yaml"
    assert read_cluster_file(path, IN_A_JOB, launcher="slurm").nodes == 4
    assert read_cluster_file(path, IN_A_JOB).nodes == 1


def test_outside_a_job_slurm_has_one_node_unless_stated(read):
    assert read("launcher: slurm").nodes == 1


def test_a_site_adds_arguments_to_slurms_commands(read):
    cluster = read(f"launcher: slurm\nsrun_args: ['{CONTAINER}']\nsalloc_args: [--qos=high]\n")

    assert (cluster.srun_args, cluster.salloc_args) == ((CONTAINER,), ("--qos=high",))


def test_a_pod_template_lies_beside_the_file(read, tmp_path):
    assert read("pod_template: pod.yaml").pod_template == str(tmp_path / "pod.yaml")
    assert read("pod_template: /etc/pod.yaml").pod_template == "/etc/pod.yaml"


def test_an_empty_table_is_this_machine(read):
    assert read("{}") == Cluster()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: 2", "nodes: unknown field"),
        ("launcher: ray", "launcher: 'ray' is not one of forkserver, ssh, slurm, kubernetes"),
        ("nnodes: two", "nnodes: "),
        ("nnodes: 0", "nnodes: 0 leaves nothing to run"),
        ("nproc_per_node: -1", "nproc_per_node: -1 leaves nothing to run"),
        ("hosts: a,b", "hosts: "),
        ("hosts: [a, a]", "hosts: one is there twice"),
        ("node_shell: ssh", "node_shell: 'ssh' is not a command with {node}"),
        ("node_shell: 'ssh {node'", "node_shell: 'ssh {node' is not a command"),
        ("rdzv_endpoint: node1", "rdzv_endpoint: 'node1' is not of the form HOST:PORT"),
        ("rdzv_endpoint: 'node1:70000'", "rdzv_endpoint: 'node1:70000' is not"),
        ("srun_args: [--output=x]", "srun_args: each launch sets --output; remove it"),
        ("srun_args: [--pty]", "srun_args: each launch sets --pty; remove it"),
        ("srun_args: [-N2]", "srun_args: each launch sets -N; remove it"),
        ("hosts: [a, b", "not valid YAML"),
        ("- a", "the file: "),
        ("", "the file: "),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_key(read, text, said):
    with pytest.raises(ConfigError) as refused:
        read(text)

    (line,) = str(refused.value).splitlines()
    assert f"cluster.yaml: {said}" in line


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        read_cluster_file(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_the_shipped_files_describe_their_launcher(name):
    path = REPOSITORY / "ci" / "templates" / name / "cluster.yaml"

    cluster = read_cluster_file(path, IN_A_JOB)

    assert cluster.launcher == name
    check_cluster(cluster, {name})
