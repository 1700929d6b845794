"""The engine on a real Slurm of two nodes: how its launches begin, end and fail."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from ddp_perf.launch.nodes.slurm import SlurmEngine

# A node process writes one line into a FIFO, and ends when its input ends.
ANNOUNCE = 'echo "$SLURM_NODEID" >"$0"; cat >/dev/null; echo ended'


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    """The others get little time to fail by themselves after the first failure."""
    monkeypatch.setattr("ddp_perf.launch.nodes.slurm.GRACE_S", 0.5)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "artifacts" / "slurm"


@pytest.fixture
def engine(cluster, output):
    engine = SlurmEngine(nodes=2, gpus_per_node=8, directory=output, on_wait=print)
    with contextlib.closing(engine):
        yield engine
    cluster.until(lambda: not cluster.jobs() and not cluster.processes())


class Started:
    def __init__(self, path):
        self.path = str(path)
        os.mkfifo(path)

    def __call__(self, count):
        lines = 0
        while lines < count:
            with open(
                self.path, encoding="utf-8"
            ) as file:  # a line, or more of them, until the writers close it
                lines += len(file.readlines())


@pytest.fixture
def started(tmp_path):
    """A FIFO of the node processes, which is called to wait until so many have begun."""
    return Started(tmp_path / "started")


def shell(script, *arguments):
    return ["sh", "-c", script, *arguments]


def run(engine, command, *, nodes=2, only=None, deadline_s=120):
    return engine.run(command, nodes=nodes, only=only, deadline_s=deadline_s)


def failures(ends):
    return {end.node: end.failure for end in ends}


def meanwhile(action):
    """Return a thread that does ``action``, which begins by waiting for the node processes."""
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_launch_is_one_process_on_each_node(engine, cluster, output):
    ends = run(engine, shell('echo "$SLURMD_NODENAME is $SLURM_NODEID of $SLURM_NNODES"'))

    assert [(end.node, end.output) for end in ends] == [
        ("node1", "node1 is 0 of 2\n"),
        ("node2", "node2 is 1 of 2\n"),
    ]
    assert failures(ends) == {"node1": None, "node2": None}
    (job,) = cluster.run("squeue", "--noheader", "--Format=NumNodes,tres-per-node").splitlines()
    assert job.split() == ["2", "gres:gpu:8"]
    assert not list(output.iterdir())


def test_a_launch_takes_the_first_nodes_or_the_one_that_it_names(engine):
    script = shell('echo "$SLURMD_NODENAME $SLURM_NODEID"')

    assert [end.output for end in run(engine, script, nodes=1)] == ["node1 0\n"]
    assert [end.output for end in run(engine, script, nodes=1, only="node2")] == ["node2 0\n"]
    with pytest.raises(LaunchError, match=r"has 2 nodes, and a launch needs 3: .*--nodes=3"):
        run(engine, script, nodes=3)
    with pytest.raises(LaunchError, match=r"does not have node 'node9'; there are: node1, node2"):
        run(engine, script, nodes=1, only="node9")


def test_processes_have_the_environment_and_all_cores(engine, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/some/where")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")  # of a job that was submitted so
    show = "import os; print(os.environ['PYTHONPATH'], len(os.sched_getaffinity(0)))"
    (end,) = run(engine, [sys.executable, "-c", show], nodes=1)

    path, cores = end.output.split()
    assert path.endswith("/some/where")
    assert int(cores) == len(os.sched_getaffinity(0))


def test_a_process_that_fails_ends_the_others_and_is_named(engine):
    fail = 'if [ "$SLURM_NODEID" = 1 ]; then echo "no torch" >&2; exit 3; fi; cat; echo ended'
    one, two = run(engine, shell(fail))

    assert (two.failure, two.output) == ("exit code 3", "no torch\n")
    assert (one.failure, one.output) == (None, "ended\n")


def test_a_process_that_a_signal_ends_is_named(engine):
    ends = run(engine, shell('[ "$SLURM_NODEID" = 1 ] || kill -9 $$; cat >/dev/null; echo ended'))

    assert failures(ends) == {"node1": "Killed", "node2": None}


def test_processes_end_by_themselves_after_the_deadline(engine):
    ends = run(engine, shell("cat >/dev/null; echo ended"), deadline_s=0.5)

    assert failures(ends) == dict.fromkeys(("node1", "node2"), "not ended after 0.5 s")
    assert [end.output for end in ends] == ["ended\n", "ended\n"]


def test_a_lost_output_is_named(engine, output, started):
    def lose():
        started(2)
        (path,) = output.glob("*/1.out")
        path.unlink()
        os.write(release, b"\n")

    reading, release = os.pipe()
    gate = f"/proc/{os.getpid()}/fd/{reading}"
    thread = meanwhile(lose)
    script = f'echo x >"$0"; [ "$SLURM_NODEID" = 0 ] || read line <{gate}; echo ended'
    one, two = run(engine, shell(script, started.path))
    thread.join()

    assert one.failure is None
    assert two.failure.startswith("its output is lost: is ")
    assert two.failure.endswith(" on a file system that all nodes share?")


def test_a_directory_that_nodes_do_not_share_is_a_lost_output(engine, cluster, tmp_path):
    hidden = tmp_path / "artifacts"
    hidden.mkdir()
    cluster.kill_node("node2")
    cluster.start_node("node2", hidden=hidden)
    try:
        _, two = run(engine, shell("echo ended"))
    finally:
        engine.close()
        cluster.kill_node("node2")
        cluster.start_node("node2")

    assert re.fullmatch(r"its output is lost: is /.* on a file system .* share\?", two.failure)


def test_slurm_names_a_node_that_fails(engine, cluster, started):
    def fail():
        started(2)
        cluster.kill_node("node2")

    thread = meanwhile(fail)
    ends = run(engine, shell(ANNOUNCE, started.path))
    thread.join()

    try:
        assert failures(ends) == {
            "node1": "ended because node2 failed",
            "node2": "the node is down: Not responding",
        }
        with pytest.raises(LaunchError, match=r"job \d+ ended \(NODE_FAIL.*: its nodes are gone"):
            run(engine, shell("true"))
    finally:
        cluster.start_node("node2")


def test_a_job_that_is_cancelled_during_a_launch_is_named(engine, cluster, started):
    job = engine.allocation().job

    def cancel():
        started(2)
        cluster.run("scancel", job)

    thread = meanwhile(cancel)
    ends = run(engine, shell(ANNOUNCE, started.path))
    thread.join()

    assert failures(ends) == dict.fromkeys(("node1", "node2"), f"job {job} was cancelled")
    with pytest.raises(LaunchError, match=f"job {job} was cancelled: its nodes are gone"):
        run(engine, shell("true"))


def test_a_step_that_is_cancelled_is_named_and_the_next_launch_runs(engine, cluster, started):
    job = engine.allocation().job

    def cancel():
        started(2)
        cluster.run("scancel", f"{job}.0")

    thread = meanwhile(cancel)
    ends = run(engine, shell(ANNOUNCE, started.path))
    thread.join()

    assert failures(ends) == dict.fromkeys(("node1", "node2"), "its step was cancelled")
    assert failures(run(engine, shell("echo on"))) == {"node1": None, "node2": None}


def test_the_reason_of_the_wait_in_the_queue_is_reported(cluster, output):
    waits = []
    with holding(cluster) as release:

        def note(text):
            waits.append(text)
            release()

        engine = SlurmEngine(nodes=2, gpus_per_node=0, directory=output, on_wait=note)
        with contextlib.closing(engine):
            run(engine, shell("echo on"))

    (text,) = waits
    assert re.fullmatch(r"job \d+ waits in Slurm's queue: (Resources|Priority)", text)


def test_slurm_refuses_a_wrong_partition(engine, cluster, monkeypatch):
    monkeypatch.setenv("SALLOC_PARTITION", "none")
    with pytest.raises(LaunchError, match=r"Slurm gives no nodes: .*Invalid partition"):
        run(engine, shell("true"))
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
def test_a_driver_that_is_ended_leaves_no_step_and_no_job(
    cluster, tmp_path, started, number, state
):
    with contextlib.ExitStack() as stack:
        if state == "waiting":
            stack.enter_context(holding(cluster))
        driver = stack.enter_context(start_driver(tmp_path, started.path))
        if state == "running":
            started(2)
        else:
            driver.stdout.readline()
        driver.send_signal(number)
        driver.wait()
        held = 1 if state == "waiting" else 0
        cluster.until(lambda: len(cluster.jobs().splitlines()) == held)
    cluster.until(lambda: not cluster.jobs() and not cluster.processes())


def test_in_a_job_the_launches_are_steps_of_it(cluster, tmp_path, started):
    """Here salloc is the user's, who runs pytest in it."""
    done = subprocess.run(
        ["salloc", "--nodes=2", "--ntasks-per-node=1", *driver_command(tmp_path, "true")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    (job,) = re.findall(r"Granted job allocation (\d+)", done.stderr)
    assert done.stdout.splitlines() == [f"job {job}", f"node1: {job} None", f"node2: {job} None"]
    cluster.until(lambda: not cluster.jobs())


DRIVER = """
import contextlib, signal, sys
from pathlib import Path
from ddp_perf.launch.nodes.slurm import SlurmEngine

def end(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
directory, script, fifo = sys.argv[1:]
engine = SlurmEngine(
    nodes=2,
    gpus_per_node=0,
    directory=Path(directory),
    on_wait=lambda text: print(text, flush=True),
)
with contextlib.closing(engine):
    print("job", engine.allocation().job)
    for end in engine.run(["sh", "-c", script, fifo], nodes=2, only=None, deadline_s=120):
        print(f"{end.node}: {end.output.strip()} {end.failure}")
"""


def driver_command(tmp_path, fifo, script='echo "$SLURM_JOB_ID"'):
    return [sys.executable, "-c", DRIVER, str(tmp_path / "output"), script, fifo]


@contextlib.contextmanager
def start_driver(tmp_path, fifo):
    """Start a process that launches, and yield it."""
    with subprocess.Popen(
        driver_command(tmp_path, fifo, ANNOUNCE),
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


def test_a_case_of_one_node_and_of_two_is_measured(engine, request_of):
    """Torchrun's ranks on the nodes of Slurm meet over gloo."""
    request = request_of("faulty:build", {"fault": "nothing"})
    launcher = NodeLauncher(engine, nodes=2)
    assert launcher.runtime().torch
    one, two = launcher.launch(request), launcher.launch(over_two_nodes(request))

    assert isinstance(one, LaunchResult), one
    assert isinstance(two, LaunchResult), two
    assert [rank.placement.node for rank in one.ranks] == [0, 0]
    assert [rank.placement.node for rank in two.ranks] == [0, 1]
    assert one.ranks[0].structure == two.ranks[0].structure


def test_a_rank_that_fails_is_named_with_its_node(engine, request_of):
    request = request_of("faulty:build", {"fault": "raise", "fault_rank": 1})
    failure = NodeLauncher(engine, nodes=2).launch(over_two_nodes(request))

    assert isinstance(failure, LaunchFailure)
    assert (failure.kind, failure.rank) == ("exception", 1)
    assert failure.node in ("node1", "node2")  # torchrun numbers nodes as they meet


def over_two_nodes(request):
    return msgspec.structs.replace(request, case=msgspec.structs.replace(request.case, nodes=2))
