"""Launches on pods of a played cluster: real torchruns, real ranks, one result."""

from __future__ import annotations

import contextlib
import json
import os
import sys

import pytest
import yaml

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.nodes.kubernetes.engine import KubernetesEngine
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from tests.builders import make_case
from tests.clusters import PlayedCluster
from tests.projects import TINY, make_project

CLUSTER = "launcher: kubernetes\npod_template: pod.yaml\n"
TEMPLATE = {
    "kind": "PodTemplate",
    "template": {"spec": {"containers": [{"name": "rank", "image": "registry.example/train:1"}]}},
}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return PlayedCluster(tmp_path, monkeypatch)


@pytest.fixture
def launcher(cluster):
    launcher = NodeLauncher(
        KubernetesEngine(TEMPLATE, on_warn=pytest.fail), nodes=2, interpreter=sys.executable
    )
    with contextlib.closing(launcher):
        yield launcher


@pytest.mark.slow
def test_two_pods_train_together(launcher, cluster):
    runtime, capacity = launcher.runtime(), launcher.capacity()
    result = launcher.launch(LaunchRequest(case=make_case(nodes=2), round=0))

    assert isinstance(result, LaunchResult), result
    assert runtime.torch
    assert capacity.accelerator_key("cpu").endswith("-node-0")  # and not the name of a pod
    assert [rank.placement.node for rank in result.ranks] == [0, 1]
    assert len({rank.digest for rank in result.ranks}) == 1
    assert result.ranks[0].structure.collectives
    assert len(cluster.launches) == 2  # the description of the nodes, and the launch
    assert cluster.left == []


@pytest.mark.slow
def test_a_pod_that_is_evicted_ends_the_launch_by_its_name(launcher, cluster, tmp_path):
    now = tmp_path / "now"
    now.touch()
    cluster.fail(pods={"1": {"reason": "Evicted", "when": str(now)}})

    failure = launcher.launch(LaunchRequest(case=make_case(nodes=2), round=0))

    assert isinstance(failure, LaunchFailure), failure
    assert failure.node == "node-1"
    assert "Evicted: The node was low on memory." in failure.detail
    assert cluster.left == []


@pytest.fixture
def session(cluster, pytester, monkeypatch):
    """``session(*arguments)`` runs a whole pytest session on the cluster."""
    project = make_project(pytester, monkeypatch, tiny=TINY)
    (project.path / "cluster.yaml").write_text(CLUSTER)
    (project.path / "pod.yaml").write_text(yaml.safe_dump(TEMPLATE))
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    kubectl = os.environ["PATH"].partition(":")[0]
    monkeypatch.setenv("PATH", f"{kubectl}:{path}")  # the image's python is this one

    def run(*arguments):
        return project.runpytest_subprocess("-m", "cpu", "-k", "structure", *arguments)

    return run


@pytest.mark.slow
def test_a_session_launches_on_the_cluster_and_its_baseline_is_named_by_the_node(
    session, cluster, pytester
):
    done = session(
        *("--ddp-cluster=cluster.yaml", "--ddp-launches=1"),
        *("--save-baseline", "--ddp-json=results.json"),
    )

    assert done.ret == pytest.ExitCode.OK, done.stdout.str()
    [result] = json.loads((pytester.path / "results.json").read_text())["suites"]
    assert result["environment"]["host"] == "node-0"
    assert result["environment"]["accelerator_key"].endswith("-node-0")
    assert len(cluster.launches) == 3  # the description, and one launch of each case
    assert cluster.left == []


@pytest.mark.parametrize(
    ("template", "fault", "message"),
    [
        (
            "other.yaml",
            {},
            "pod_template: other.yaml: No such file or directory",
        ),
        (
            "pod.yaml",
            {"refuse": "Error from server (Forbidden): jobs.batch is forbidden"},
            "kubectl create: Error from server (Forbidden): jobs.batch is forbidden",
        ),
    ],
)
def test_what_keeps_a_session_from_the_cluster_is_one_line(
    session, cluster, pytester, template, fault, message
):
    cluster.fail(**fault)
    (pytester.path / "cluster.yaml").write_text(CLUSTER.replace("pod.yaml", template))

    done = session("--ddp-cluster=cluster.yaml")

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.str().strip() == f"ERROR: {message}"


def test_collecting_starts_nothing(session, cluster):
    done = session("--collect-only", "--ddp-cluster=cluster.yaml")

    assert done.ret == pytest.ExitCode.OK
    assert cluster.launches == []
