"""A launch is one Job: its pods run the command, and each end has the name of its node."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.kubernetes import engine as kubernetes_engine
from ddp_perf.launch.nodes.kubernetes.engine import KubernetesEngine, Limits

TEMPLATE = {
    "kind": "PodTemplate",
    "template": {
        "spec": {"containers": [{"name": "rank", "image": "registry.example/train:1"}]},
    },
}
SHORT = Limits(start_s=1, obstacle_s=0.3, silent_s=0.3, others_s=1, log_s=5, poll_s=0.05)
INDEX = "import os; index = os.environ['JOB_COMPLETION_INDEX']\n"


@pytest.fixture
def engine(cluster):
    with contextlib.closing(KubernetesEngine(TEMPLATE, SHORT, on_warn=print)) as engine:
        yield engine


def run(engine, code, *, nodes=2, only=None, deadline_s=60.0):
    command = [sys.executable, "-c", INDEX + code]
    return engine.run(command, nodes=nodes, only=only, deadline_s=deadline_s)


@contextlib.contextmanager
def once_a_pod_is_there(cluster, act):
    """Call ``act`` from another thread as soon as the first launch has a pod."""

    def watch():
        while not (cluster.launches and (cluster.launches[0] / "pod-0.json").exists()):
            time.sleep(0.01)
        act()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield
    watcher.join()


@pytest.fixture
def ctrl_c():
    """Send this process what Ctrl-C sends."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_each_node_runs_the_command_once_and_its_output_comes_back(engine, cluster):
    ends = run(engine, "print('a first line'); print('node', index)")

    assert [end.node for end in ends] == ["node-0", "node-1"]
    assert [end.output for end in ends] == ["a first line\nnode 0\n", "a first line\nnode 1\n"]
    assert [end.failure for end in ends] == [None, None]
    assert cluster.left == []


@pytest.mark.slow
def test_a_long_last_line_comes_back_whole(engine):
    [end] = run(engine, "print('x' * 3_000_000 + '!')", nodes=1)

    assert len(end.output) == 3_000_002
    assert end.output.endswith("x!\n")


@pytest.mark.slow
def test_a_log_that_breaks_off_is_read_again(engine, cluster):
    cluster.fail(cut_logs=True)

    [end] = run(engine, "import time; print(1, flush=True); time.sleep(1); print(2)", nodes=1)

    assert end.output == "1\n2\n"


def test_only_a_launch_on_several_nodes_has_a_service(engine, cluster):
    run(engine, "pass", nodes=1)
    run(engine, "pass", nodes=2)

    jobs = [cluster.manifest("Job", launch) for launch in (0, 1)]
    service = cluster.manifest("Service", 1)
    assert not (cluster.launches[0] / "Service.json").exists()
    assert service["metadata"]["name"] == jobs[1]["metadata"]["name"]
    assert service["metadata"]["ownerReferences"][0]["uid"] == jobs[1]["metadata"]["uid"]


@pytest.mark.slow
def test_every_launch_of_every_session_has_a_name_of_its_own(engine, cluster):
    run(engine, "pass", nodes=1)
    run(engine, "pass", nodes=1)
    with contextlib.closing(KubernetesEngine(TEMPLATE, SHORT, on_warn=print)) as other:
        run(other, "pass", nodes=1)

    names = {each.name for each in cluster.launches}
    assert len(names) == 3
    assert all(len(name) <= 61 for name in names)  # a pod adds its number


@pytest.mark.slow
def test_a_session_stays_on_the_nodes_of_its_first_launches(engine, cluster):
    def restriction(launch):
        spec = cluster.manifest("Job", launch)["spec"]["template"]["spec"]
        affinity = spec["affinity"].get("nodeAffinity")
        return affinity and [
            term["matchFields"][0]["values"]
            for term in affinity["requiredDuringSchedulingIgnoredDuringExecution"][
                "nodeSelectorTerms"
            ]
        ]

    for nodes in (2, 1, 2):
        run(engine, "pass", nodes=nodes)
    [end] = run(engine, "pass", nodes=1, only="node-8")

    assert [restriction(launch) for launch in range(4)] == [
        None,
        [["node-0"]],
        [["node-0"], ["node-1"]],
        [["node-8"]],
    ]
    assert end.node == "node-8"


def test_a_node_that_fails_ends_the_others_and_is_named(engine, cluster):
    first, second = run(engine, "import time; index == '1' and exit(3); time.sleep(60)")

    assert second.failure == "exit code 3"
    assert first.failure == "it was ended, because node node-1 had failed"
    assert (first.was_ended, second.was_ended) == (True, False)
    assert cluster.left == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "failure"),
    [
        ("OOMKilled", "the kernel ended it, because it exceeded its memory limit (OOMKilled)"),
        ("Evicted", "Evicted: The node was low on memory."),
        ("lost", "the node does not answer"),
        ("deleted", "its pod was deleted"),
    ],
)
def test_what_the_cluster_does_to_a_pod_is_the_failure(engine, cluster, tmp_path, reason, failure):
    started = tmp_path / "started"
    cluster.fail(pods={"1": {"reason": reason, "when": str(started)}})

    first, second = run(
        engine,
        f"""
import pathlib, time
print('begun', flush=True)
if index == '1':
    time.sleep(0.5)
    pathlib.Path({str(started)!r}).touch()
time.sleep(60)
""",
    )

    assert second.failure == failure
    assert second.output == "begun\n"
    assert first.failure == "it was ended, because node node-1 had failed"
    assert (first.was_ended, second.was_ended) == (True, False)


@pytest.mark.slow
def test_after_the_deadline_all_are_ended(engine, cluster):
    ends = run(engine, "import time; print('begun', flush=True); time.sleep(60)", deadline_s=1)

    assert [end.failure for end in ends] == ["it still ran after 1 s"] * 2
    assert [end.was_ended for end in ends] == [True, True]
    assert [end.output for end in ends] == ["begun\n"] * 2
    assert cluster.left == []


@pytest.mark.parametrize(
    ("fault", "nodes", "message"),
    [
        (
            {"pods": {"1": {"unschedulable": "0/3 nodes are available: 3 Insufficient gpu."}}},
            2,
            r"1 pod has no node: 0/3 nodes are available: 3 Insufficient gpu\.$",
        ),
        (
            {
                "pods": {
                    "0": {
                        "waiting": {
                            "reason": "ImagePullBackOff",
                            "message": "Back-off pulling image: not found",
                        }
                    }
                }
            },
            1,
            r"node node-0: container 'rank' with image registry\.example/train:1 cannot start:"
            r" Back-off pulling image: not found$",
        ),
        (
            {"pods": {"0": {"waiting": {"reason": "ContainerCreating"}}}},
            1,
            r"the pod on node node-0 did not start within 1 s$",
        ),
        (
            {"quota": "pods is forbidden: exceeded quota: gpus"},
            2,
            r"2 of 2 pods were not created: pods is forbidden: exceeded quota: gpus$",
        ),
        (
            {"refuse": "Error from server (Forbidden): jobs.batch is forbidden"},
            2,
            r"^kubectl create: Error from server \(Forbidden\): jobs\.batch is forbidden$",
        ),
        (
            {"unanswered": True},
            2,
            r"^kubectl create: Unable to connect to the server: .* i/o timeout$",
        ),
    ],
)
def test_a_launch_that_cannot_start_names_the_reason(engine, cluster, fault, nodes, message):
    cluster.fail(**fault)

    with pytest.raises(LaunchError, match=message):
        run(engine, "pass", nodes=nodes)

    assert cluster.left == []


@pytest.mark.slow
def test_a_cluster_that_stops_answering_ends_the_launch(engine, cluster):
    with (
        once_a_pod_is_there(cluster, lambda: cluster.fail(unanswered=True)),
        pytest.raises(LaunchError, match="kubectl get: Unable to connect to the server"),
    ):
        run(engine, "import time; time.sleep(60)", nodes=1)

    assert cluster.calls[-1].startswith("delete --")


def test_ctrl_c_deletes_the_job(engine, cluster, ctrl_c):
    with once_a_pod_is_there(cluster, ctrl_c), pytest.raises(KeyboardInterrupt):
        run(engine, "import time; time.sleep(60)")

    assert len(cluster.launches) == 1
    assert cluster.left == []


@pytest.mark.parametrize(("failed", "warned"), [(2, 0), (3, 1)])
def test_a_job_that_cannot_be_deleted_costs_no_launch(cluster, failed, warned):
    cluster.fail(undeleted=failed)
    warnings = []
    engine = KubernetesEngine(TEMPLATE, SHORT, on_warn=warnings.append)

    with contextlib.closing(engine):
        [end] = run(engine, "print('done')", nodes=1)

    assert (end.output, end.failure) == ("done\n", None)
    assert len(warnings) == warned
    for warning in warnings:
        assert "is not deleted, and the cluster removes it later: kubectl delete: etcd" in warning


@pytest.mark.slow
def test_a_kubectl_that_hangs_is_ended(engine, cluster, monkeypatch):
    monkeypatch.setattr(kubernetes_engine, "_PROCESS_S", 0.2)
    cluster.fail(hangs=True)

    with pytest.raises(LaunchError, match=r"kubectl create: it did not end in 0\.2 s"):
        run(engine, "", nodes=1)


def test_without_kubectl_the_remedy_is_stated(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LaunchError, match="needs kubectl, and it is not on PATH"):
        KubernetesEngine(TEMPLATE, on_warn=print)


def test_the_namespace_of_the_template_is_that_of_every_request(cluster):
    template = TEMPLATE | {"metadata": {"namespace": "perf"}}
    with contextlib.closing(KubernetesEngine(template, SHORT, on_warn=print)) as engine:
        run(engine, "pass", nodes=2)

    requests = [call for call in cluster.calls if not call.startswith("kubelet")]
    assert {call.split()[0] for call in requests} == {"create", "get", "logs", "delete"}
    assert all("--namespace=perf" in call for call in requests)
