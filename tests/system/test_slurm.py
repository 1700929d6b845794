"""The engine on a real Slurm of two nodes: how its launches begin, end and fail."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch import server_launcher
from ddp_perf.launch.engines.slurm import SlurmEngine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.slurm_cluster import NODES


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    """The others get little time to fail by themselves after the first failure."""
    monkeypatch.setattr("ddp_perf.launch.rank_server.GRACE_S", 0.5)


@contextlib.contextmanager
def opened(**changes):
    """Yield an engine and its launcher."""
    engine = SlurmEngine(**{"nodes": 2, "gpus_per_node": 8, "on_wait": print, **changes})
    with contextlib.closing(ServerLauncher(engine)) as launcher:
        yield engine, launcher


@pytest.fixture
def slurm(cluster):
    with opened() as both:
        yield both
    cluster.until(lambda: not cluster.jobs() and not cluster.processes())


@pytest.fixture
def over_nodes(request_of):
    """Return a launch of a rank on each of the nodes, one of which may have a fault."""

    def make(fault="nothing", *, nodes=2, **suite):
        request = request_of("faulty:build", {"fault": fault}, **suite)
        case = msgspec.structs.replace(request.case, nodes=nodes)
        return msgspec.structs.replace(request, case=case)

    return make


@pytest.fixture
def meanwhile(cluster, slurm):
    """Return a function that does something while ranks of a launch run; it returns the failure."""
    _, launcher = slurm

    def launch(action, request):
        launcher.runtime()

        def act():
            wait_for_ranks(cluster)
            action()

        thread = threading.Thread(target=act)
        thread.start()
        failure = launcher.launch(request)
        thread.join()
        assert isinstance(failure, LaunchFailure)
        return failure

    return launch


def serving(cluster, node):
    """Return the server on a node, and its ranks, by age."""
    found = []
    for pid in cluster.processes():
        with contextlib.suppress(OSError):  # it has ended
            place = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
            command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
            if f"SLURMD_NODENAME={node}\0" in place and "ddp_perf.launch.server" in command:
                found.append(pid)
    return sorted(found)


def wait_for_ranks(cluster):
    """Wait until the server of each node has a rank."""
    cluster.until(lambda: all(len(serving(cluster, node)) == 2 for node in NODES))


def steps(cluster):
    """Return the number and the node of each job step, by node."""
    listed = cluster.run("squeue", "--steps", "--noheader", "--format=%i %N")
    return sorted(map(str.split, listed.splitlines()), key=lambda step: step[1])


def test_servers_on_the_nodes_of_one_job_measure_every_launch(slurm, cluster, over_nodes):
    _, launcher = slurm
    assert launcher.runtime().torch
    (job,) = cluster.run("squeue", "--noheader", "--Format=NumNodes,tres-per-node").splitlines()
    assert job.split() == ["2", "gres:gpu:8"]
    servers = steps(cluster)

    two, again = launcher.launch(over_nodes()), launcher.launch(over_nodes())
    one = launcher.launch(over_nodes(nodes=1))
    other = launcher.launch(msgspec.structs.replace(over_nodes(nodes=1), node="node2"))

    for launch in (two, again, one, other):
        assert isinstance(launch, LaunchResult), launch
    assert [rank.placement.node for rank in two.ranks] == [0, 1]
    assert [rank.placement.node for rank in one.ranks] == [0, 0]
    assert one.ranks[0].structure == two.ranks[0].structure
    assert [node for _, node in servers] == ["node1", "node2"]
    assert steps(cluster) == servers


def test_servers_have_the_environment_and_all_cores(slurm, cluster, monkeypatch):
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")  # of a job that was submitted so
    monkeypatch.setenv("CHOSEN", "by the user")
    with opened() as (_, launcher):
        launcher.runtime()
        (server,) = serving(cluster, "node2")

        assert "CHOSEN=by the user\0" in Path(f"/proc/{server}/environ").read_text(encoding="utf-8")
        assert os.sched_getaffinity(server) == os.sched_getaffinity(0)


def test_a_job_has_fewer_nodes_than_the_cluster_file(cluster, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    with opened(nodes=3) as (_, launcher), pytest.raises(LaunchError, match=r"has 2 nodes, .* 3: "):
        launcher.runtime()


def test_a_rank_that_fails_is_named_with_its_node(slurm, over_nodes):
    failure = slurm[1].launch(over_nodes("raise"))

    assert isinstance(failure, LaunchFailure)
    assert (failure.kind, failure.rank, failure.node) == ("exception", 1, "node2")


def test_a_server_that_is_killed_is_named_and_the_next_launch_runs(slurm, over_nodes):
    launcher = slurm[1]
    failure = launcher.launch(over_nodes("kill-server"))

    assert (failure.node, failure.detail) == (
        "node2",
        "the server on node2 (srun …) ended (exit code 137), and its ranks with it",
    )
    assert "srun: error: node2: task 0: Killed" in failure.output
    assert isinstance(launcher.launch(over_nodes()), LaunchResult)


def test_a_server_that_is_stopped_is_ended_with_its_step(
    meanwhile, cluster, over_nodes, monkeypatch
):
    monkeypatch.setattr(server_launcher, "MOST_PATIENCE_S", 5.0)

    def stop():
        os.kill(serving(cluster, "node2")[0], signal.SIGSTOP)

    failure = meanwhile(stop, over_nodes("hang", step_deadline_s=5))

    assert failure.node == "node2"
    assert failure.detail.startswith("the server on node2 (srun …) gave no sign of life for 5 s")
    assert [node for _, node in steps(cluster)] == ["node1"]


def test_a_server_that_cannot_start_is_named_with_the_reason(cluster, over_nodes):
    with opened(interpreter="no-python") as (_, launcher):
        failure = launcher.launch(over_nodes())

    assert (failure.node, failure.kind) == ("node1", "server")
    assert "node node1: no rank can be started there: the server on node1 (srun" in failure.detail
    assert "no-python: No such file" in failure.detail


def test_slurm_names_a_node_that_fails(slurm, meanwhile, cluster, over_nodes):
    try:
        failure = meanwhile(lambda: cluster.kill_node("node2"), over_nodes("hang"))

        assert (failure.node, failure.detail) == ("node2", "the node is down: Not responding")
        cluster.until(lambda: not cluster.jobs())  # Slurm ends it a moment later
        with pytest.raises(LaunchError, match=r"job \d+ ended, since node2 failed: its nodes"):
            slurm[1].launch(over_nodes())
    finally:
        cluster.start_node("node2")


def test_a_job_that_is_cancelled_during_a_launch_is_named(slurm, meanwhile, cluster, over_nodes):
    engine, launcher = slurm
    job = engine.allocation.job

    failure = meanwhile(lambda: cluster.run("scancel", job), over_nodes("hang"))

    assert failure.detail == f"job {job} was cancelled"
    with pytest.raises(LaunchError, match=f"job {job} was cancelled: its nodes are gone"):
        launcher.launch(over_nodes())


def test_a_step_that_is_cancelled_is_named_and_the_next_launch_runs(
    slurm, meanwhile, cluster, over_nodes
):
    def cancel():
        (step,) = [step for step, node in steps(cluster) if node == "node2"]
        cluster.run("scancel", step)

    failure = meanwhile(cancel, over_nodes("hang"))

    assert failure.node == "node2"
    assert "srun: Job step aborted" in failure.output
    assert isinstance(slurm[1].launch(over_nodes()), LaunchResult)


def test_the_reason_of_the_wait_in_the_queue_is_reported(cluster):
    waits = []
    with holding(cluster) as release:

        def note(text):
            waits.append(text)
            release()

        with opened(on_wait=note) as (engine, _):
            assert engine.nodes == ("node1", "node2")

    (text,) = waits
    assert re.fullmatch(r"job \d+ waits in Slurm's queue: (Resources|Priority)", text)


def test_slurm_refuses_a_wrong_partition(slurm, cluster, monkeypatch):
    monkeypatch.setenv("SALLOC_PARTITION", "none")
    with pytest.raises(LaunchError, match=r"Slurm gives no nodes: .*Invalid partition"):
        slurm[1].runtime()
    assert not cluster.jobs()


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (signal.SIGINT, "running"),
        (signal.SIGTERM, "running"),
        (signal.SIGKILL, "running"),
        (signal.SIGINT, "waiting"),
        (signal.SIGTERM, "waiting"),
    ],
)
def test_a_driver_that_is_ended_leaves_no_server_and_no_job(cluster, over_nodes, number, state):
    with contextlib.ExitStack() as stack:
        if state == "waiting":
            stack.enter_context(holding(cluster))
        driver = stack.enter_context(start_driver(over_nodes("hang")))
        driver.stdout.readline()
        if state == "running":
            wait_for_ranks(cluster)
        driver.send_signal(number)
        driver.wait()
        held = 1 if state == "waiting" else 0
        cluster.until(lambda: len(cluster.jobs().splitlines()) == held)
    cluster.until(lambda: not cluster.jobs() and not cluster.processes())


def test_in_a_job_the_servers_are_steps_of_it(cluster, over_nodes):
    """Here salloc is the user's, who runs pytest in it."""
    done = subprocess.run(
        ["salloc", "--nodes=2", "--ntasks-per-node=1", *driver_command(over_nodes())],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (job,) = re.findall(r"Granted job allocation (\d+)", done.stderr)
    assert done.stdout.splitlines() == [f"job {job}", "LaunchResult"]
    cluster.until(lambda: not cluster.jobs())


DRIVER = """
import contextlib, signal, sys
import msgspec
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.launch.engines.slurm import SlurmEngine
from ddp_perf.launch import server_launcher
from ddp_perf.launch.server_launcher import ServerLauncher

def end(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
engine = SlurmEngine(nodes=2, gpus_per_node=0, on_wait=lambda text: print(text, flush=True))
with contextlib.closing(ServerLauncher(engine)) as launcher:
    launcher.runtime()
    print("job", engine.allocation.job, flush=True)
    print(type(launcher.launch(msgspec.json.decode(sys.argv[1], type=LaunchRequest))).__name__)
"""


def driver_command(request):
    return [sys.executable, "-c", DRIVER, msgspec.json.encode(request).decode()]


@contextlib.contextmanager
def start_driver(request):
    """Start a process that launches, and yield it."""
    with subprocess.Popen(
        driver_command(request),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            yield driver
        finally:
            driver.kill()


@contextlib.contextmanager
def holding(cluster):
    """Hold all nodes with another job, and yield a function that gives them back."""
    command = ["salloc", "--nodes=2", "--exclusive", "sh", "-c", "echo granted; exec cat"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as holder:
        holder.stdout.readline()
        try:
            yield holder.stdin.close
        finally:
            holder.stdin.close()
            holder.wait()
