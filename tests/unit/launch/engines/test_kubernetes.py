"""A Job holds nodes for a session: servers run in its pods, and a lost pod has a reason."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from ddp_perf.errors import LaunchError
from ddp_perf.launch.engine import SERVER
from ddp_perf.launch.engines import kubernetes
from ddp_perf.launch.engines.kubernetes import KubernetesEngine, Limits
from ddp_perf.launch.engines.pods import HOLDER
from tests.clusters import TEMPLATE, PlayedCluster

SHORT = Limits(start_s=1, obstacle_s=0.3, silent_s=0.3, loss_s=2, poll_s=0.05)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return PlayedCluster(tmp_path, monkeypatch)


def make_engine(nodes=2, *, template=TEMPLATE, on_warn=pytest.fail):
    return contextlib.closing(KubernetesEngine(template, SHORT, nodes=nodes, on_warn=on_warn))


@pytest.fixture
def engine(cluster):
    with make_engine() as engine:
        yield engine


def execute(engine, node, code, tmp_path, given=""):
    """Run Python code in the place of a server, and return what it printed."""
    words = engine.transport(node, "cpu", tmp_path).words
    assert words[-len(SERVER) :] == [*SERVER]
    command = [*words[: -len(SERVER)], "-c", code]
    return subprocess.run(command, input=given, text=True, capture_output=True, check=False)


def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def once_a_pod_is_there(cluster, act):
    """Call ``act`` from another thread as soon as the first Job has a pod."""

    def watch():
        wait_until(lambda: cluster.jobs and (cluster.jobs[0] / "pod-0.json").exists())
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


def test_one_job_holds_the_nodes_until_the_engine_is_closed(engine, cluster):
    assert engine.nodes == engine.nodes == ("node-0", "node-1")
    assert len(cluster.jobs) == 1
    assert len(cluster.running) == 2

    engine.close()
    engine.close()

    assert cluster.left == []
    wait_until(lambda: cluster.running == [])


def test_a_command_runs_in_a_pod_with_its_streams(engine, tmp_path):
    node = engine.nodes[1]
    done = execute(
        engine, node, "import sys; print(input() * 2); sys.exit(3)", tmp_path, "a line\n"
    )

    assert (done.stdout, done.returncode) == ("a linea line\n", 3)
    assert engine.transport(node, "cpu", tmp_path).who.startswith("the server on node-1 (kubectl")


def test_ranks_meet_at_the_name_of_the_first_pod(engine, cluster):
    first = engine.nodes[0]

    job, service = cluster.manifest("Job"), cluster.manifest("Service")
    name = job["metadata"]["name"]
    assert engine.endpoint(first) == f"{name}-0.{name}:29400"
    assert service["metadata"]["name"] == name
    assert service["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


def test_one_node_has_no_service(cluster):
    with make_engine(1) as engine:
        assert engine.nodes == ("node-0",)

    assert not (cluster.jobs[0] / "Service.json").exists()


def test_every_session_has_a_job_of_its_own_name(engine, cluster):
    assert engine.nodes
    with make_engine() as other:
        assert other.nodes

    names = {each.name for each in cluster.jobs}
    assert len(names) == 2
    assert all(len(name) <= 61 for name in names)  # a pod adds its number


def affinity(cluster, job):
    required = cluster.manifest("Job", job)["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (terms,) = required["requiredDuringSchedulingIgnoredDuringExecution"].values()
    return [term["matchFields"][0]["values"] for term in terms]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "failure"),
    [
        ("OOMKilled", "the kernel ended it, because it exceeded its memory limit (OOMKilled)"),
        ("Evicted", "Evicted: The node was low on memory."),
        ("lost", "the node does not answer"),
        ("deleted", "its pod was deleted"),
        ("killed", "its container ended with exit code 137"),
    ],
)
def test_a_pod_that_is_lost_has_a_reason_and_is_replaced_on_its_node(
    engine, cluster, tmp_path, reason, failure
):
    now = tmp_path / "now"
    cluster.fail(pods={"1": {"reason": reason, "when": str(now)}})
    first, second = engine.nodes
    before = [engine.transport(node, "cpu", tmp_path).words for node in (first, second)]
    now.touch()

    assert engine.loss(second) == failure
    after = [engine.transport(node, "cpu", tmp_path).words for node in (first, second)]

    assert before[0] == after[0]
    assert before[1] != after[1]
    assert [len(cluster.jobs), affinity(cluster, 1)] == [2, [["node-1"]]]
    assert execute(engine, second, "print(1)", tmp_path).stdout == "1\n"
    assert engine.nodes == (first, second)


@pytest.mark.slow
def test_what_runs_in_a_pod_ends_with_it_and_the_next_one_is_on_the_same_node(
    engine, cluster, tmp_path
):
    now = tmp_path / "now"
    cluster.fail(pods={"0": {"reason": "Evicted", "when": str(now)}})
    code = f"import pathlib, time; pathlib.Path({str(now)!r}).touch(); time.sleep(60)"

    done = execute(engine, engine.nodes[0], code, tmp_path)
    cluster.fail()

    assert done.returncode != 0
    before = cluster.manifest("Job")["metadata"]["name"]
    wait_until(lambda: before not in engine.endpoint("node-0"))  # nobody asked why it was lost
    assert affinity(cluster, 1) == [["node-0"]]


@pytest.mark.slow
def test_a_server_that_ends_by_itself_is_no_loss_of_its_pod(engine):
    assert engine.loss(engine.nodes[0]) is None


@pytest.mark.slow
def test_after_a_close_the_session_stays_on_its_nodes(engine, cluster, tmp_path):
    nodes = engine.nodes
    engine.close()

    engine.transport(nodes[1], "cpu", tmp_path)

    assert engine.nodes == nodes
    assert affinity(cluster, 1) == [["node-1"]]


@pytest.mark.slow
def test_a_node_that_takes_no_other_pod_is_waited_for_once(engine, cluster, tmp_path):
    now = tmp_path / "now"
    cluster.fail(pods={"1": {"reason": "Evicted", "when": str(now)}})
    second = engine.nodes[1]
    now.touch()
    assert engine.loss(second)
    cluster.fail(pods={"0": {"unschedulable": "1 node(s) were unschedulable"}})

    for _ in range(2):
        with pytest.raises(LaunchError, match=r"1 pod has no node: 1 node\(s\) were unschedulable"):
            engine.transport(second, "cpu", tmp_path)

    assert engine.endpoint(second)  # the launcher asks for it first
    assert len(cluster.jobs) == 2
    assert len(cluster.left) == 1  # that of the other node


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            {"pods": {"1": {"unschedulable": "0/3 nodes are available: 3 Insufficient gpu."}}},
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
            r"node node-0: container 'rank' with image registry\.example/train:1 cannot start:"
            r" Back-off pulling image: not found$",
        ),
        (
            {"pods": {"0": {"waiting": {"reason": "ContainerCreating"}}}},
            r"the pod on node node-0 did not start within 1 s$",
        ),
        (
            {
                "pods": {
                    "1": {
                        "terminated": {
                            "exitCode": 128,
                            "reason": "StartError",
                            "message": 'exec: "python": executable file not found in $PATH',
                        }
                    }
                }
            },
            r"node node-1: its container ended with exit code 128: exec: \"python\": executable"
            r" file not found in \$PATH$",
        ),
        (
            {"quota": "pods is forbidden: exceeded quota: gpus"},
            r"2 of 2 pods were not created: pods is forbidden: exceeded quota: gpus$",
        ),
        (
            {"refuse": "Error from server (Forbidden): jobs.batch is forbidden"},
            r"^kubectl create: Error from server \(Forbidden\): jobs\.batch is forbidden$",
        ),
        (
            {"unattached": "Error from server (Forbidden): cannot create pods/attach"},
            r"^kubectl attach: Error from server \(Forbidden\): cannot create pods/attach$",
        ),
        (
            {"unanswered": True},
            r"^kubectl create: Unable to connect to the server: .* i/o timeout$",
        ),
        (
            {"prints": {"create": "Warning: this is no JSON"}},
            r"^kubectl create: prints no object: ",
        ),
        (
            {"prints": {"get": "[]"}},
            r"^kubectl get pods: prints no list of pods: Expected `object`, got `array`$",
        ),
    ],
)
def test_a_session_that_gets_no_nodes_names_the_reason(cluster, fault, message):
    cluster.fail(**fault)

    with make_engine(on_warn=print) as engine, pytest.raises(LaunchError, match=message):
        _ = engine.nodes

    assert cluster.left == []


@pytest.mark.slow
def test_a_cluster_that_stops_answering_ends_the_wait(cluster):
    cluster.fail(pods={"0": {"waiting": {"reason": "ContainerCreating"}}})
    with (
        make_engine(1, on_warn=print) as engine,
        once_a_pod_is_there(cluster, lambda: cluster.fail(unanswered=True)),
        pytest.raises(LaunchError, match="kubectl get: Unable to connect to the server"),
    ):
        _ = engine.nodes

    assert cluster.calls[-1].startswith("delete --")


def test_ctrl_c_deletes_the_job(engine, cluster, ctrl_c):
    cluster.fail(pods={"0": {"waiting": {"reason": "ContainerCreating"}}})

    with once_a_pod_is_there(cluster, ctrl_c), pytest.raises(KeyboardInterrupt):
        _ = engine.nodes

    assert len(cluster.jobs) == 1
    assert cluster.left == []


@pytest.mark.parametrize(("failed", "warned"), [(2, 0), (3, 1)])
def test_a_job_that_cannot_be_deleted_is_a_warning(cluster, failed, warned):
    cluster.fail(undeleted=failed)
    warnings: list[str] = []

    with make_engine(1, on_warn=warnings.append) as engine:
        assert engine.nodes

    assert len(warnings) == warned
    for warning in warnings:
        assert "is not deleted, and the cluster removes it later: kubectl delete: etcd" in warning
    wait_until(lambda: cluster.running == [])


@pytest.mark.slow
def test_a_kubectl_that_hangs_is_ended(cluster, monkeypatch):
    monkeypatch.setattr(kubernetes, "_PROCESS_S", 0.2)
    cluster.fail(hangs=True)

    with (
        make_engine(on_warn=print) as engine,
        pytest.raises(LaunchError, match=r"kubectl create: it did not end in 0\.2 s"),
    ):
        _ = engine.nodes


def test_without_kubectl_the_remedy_is_stated(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LaunchError, match="needs kubectl, and it is not on PATH"):
        make_engine()


def test_the_namespace_of_the_template_is_that_of_every_request(cluster, tmp_path):
    with make_engine(template=TEMPLATE | {"metadata": {"namespace": "perf"}}) as engine:
        execute(engine, engine.nodes[0], "", tmp_path)

    requests = [call for call in cluster.calls if not call.startswith("kubelet")]
    assert {call.split()[0] for call in requests} == {"create", "get", "attach", "exec", "delete"}
    assert all("--namespace=perf" in call for call in requests)


def holder(patience_s):
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(patience_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def test_a_holder_ends_with_its_input():
    with holder(60) as process:
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.read(1) == b"\n"
        assert process.poll() is None

        process.stdin.close()

        assert process.wait(20) == 0


def test_a_holder_ends_if_nobody_comes():
    with holder(0.1) as process:
        assert process.wait(20) == 0
        assert process.stdout.read() == b""


def test_a_holder_ends_at_sigterm():
    with holder(60) as process:
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.read(1)

        process.terminate()

        assert process.wait(20) == 0
