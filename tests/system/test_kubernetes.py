"""Launches on pods of a played cluster: real servers, real ranks, one result."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time

import msgspec
import pytest
import yaml

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_case
from tests.clusters import TEMPLATE, EngineOnThisMachine, PlayedCluster
from tests.projects import TINY, make_project

CLUSTER = "launcher: kubernetes\npod_template: pod.yaml\n"
DRIVER = """
import sys, time
from ddp_perf.launch.engines.kubernetes import KubernetesEngine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.clusters import TEMPLATE

ServerLauncher(KubernetesEngine(TEMPLATE, nodes=2, on_warn=print)).runtime()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return PlayedCluster(tmp_path, monkeypatch)


@pytest.fixture
def launcher(cluster):
    engine = EngineOnThisMachine(TEMPLATE, nodes=2, on_warn=pytest.fail)
    with contextlib.closing(ServerLauncher(engine)) as launcher:
        yield launcher


@pytest.mark.slow
def test_two_pods_train_together_and_the_second_launch_is_warm(launcher, cluster):
    runtime, capacity = launcher.runtime(), launcher.capacity()
    results = [
        launcher.launch(LaunchRequest(case=make_case(nodes=2), round=number)) for number in (0, 1)
    ]

    assert runtime.torch
    assert capacity.accelerator_key("cpu").endswith("-node-0")  # and not the name of a pod
    for result in results:
        assert isinstance(result, LaunchResult), result
        assert [rank.placement.node for rank in result.ranks] == [0, 1]
        assert len({rank.digest for rank in result.ranks}) == 1
        assert result.ranks[0].structure.collectives
    servers = [call for call in cluster.calls if call.startswith("exec")]
    assert len(cluster.jobs) == 1
    assert len(servers) == 2

    launcher.close()

    assert cluster.left == []


@pytest.mark.slow
def test_a_pod_that_is_evicted_ends_a_launch_by_its_name_and_costs_no_other(
    launcher, cluster, tmp_path
):
    now = tmp_path / "now"
    cluster.fail(pods={"1": {"reason": "Evicted", "when": str(now)}})
    request = LaunchRequest(case=make_case(nodes=2), round=0)
    assert isinstance(launcher.launch(request), LaunchResult)
    endless = msgspec.structs.replace(request.case.schedule, steps=10**6)
    case = msgspec.structs.replace(request.case, schedule=endless)

    threading.Timer(3, now.touch).start()
    failure = launcher.launch(LaunchRequest(case=case, round=1))
    later = tmp_path / "later"
    cluster.fail(pods={"0": {"reason": "Evicted", "when": str(later)}})
    after = launcher.launch(request)
    later.touch()
    cluster.fail()
    while len(cluster.running) > 1:
        time.sleep(0.1)
    time.sleep(1)  # for the end of its server to arrive
    after_another = launcher.launch(request)

    assert isinstance(failure, LaunchFailure), failure
    assert failure.node == "node-1"
    assert "Evicted: The node was low on memory." in failure.detail
    assert isinstance(after, LaunchResult), after
    assert isinstance(after_another, LaunchResult), after_another
    assert len(cluster.jobs) == 3


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_no_pod(cluster):
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE) as driver:
        assert driver.stdout.readline() == b"ready\n"
        assert len(cluster.running) == 2
        driver.kill()

    end = time.monotonic() + 30
    while cluster.running:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def session(cluster, pytester, monkeypatch):
    """``session(*arguments)`` runs a whole pytest session on the cluster."""
    project = make_project(pytester, monkeypatch, tiny=TINY)
    (project.path / "cluster.yaml").write_text(CLUSTER)
    (project.path / "pod.yaml").write_text(yaml.safe_dump(TEMPLATE))

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
    assert len(cluster.jobs) == 1
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
    assert cluster.jobs == []
