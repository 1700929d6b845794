"""The failures of launches over each transport that can run here: one server, one protocol."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchResult, Profiling
from ddp_perf.errors import LaunchError
from ddp_perf.launch import rank_server
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.engines.machine import ThisMachine, UserCommand
from ddp_perf.launch.engines.slurm import SlurmEngine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.system.two_hosts import obstacle, two_hosts

WORKLOADS = Path(__file__).parent / "workloads"
PATIENT = {"start_deadline_s": 600, "step_deadline_s": 600}  # no deadline ends it


@contextlib.contextmanager
def _this_machine(request):
    yield ThisMachine()


@contextlib.contextmanager
def _wrapped(request):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield UserCommand("sh -c 'exec {command}'", environ={**os.environ, "PATH": path})


@contextlib.contextmanager
def _shells(request):
    """Two hosts, both of which are this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    yield Hosts(["first", "second"], node_shell="env NODE={node} sh -c", endpoint=endpoint)


@contextlib.contextmanager
def _namespaces(request):
    if (reason := obstacle()) is not None:
        pytest.skip(reason)
    with two_hosts() as hosts:
        endpoint = f"{hosts.addresses[0]}:29400"
        yield Hosts(hosts.names, node_shell=hosts.shell, endpoint=endpoint)


@contextlib.contextmanager
def _slurm(request):
    request.getfixturevalue("cluster")
    yield SlurmEngine(nodes=2, gpus_per_node=0, on_wait=print)


TRANSPORTS = {
    "this-machine": _this_machine,
    "command": _wrapped,
    "shells": _shells,
    "namespaces": _namespaces,
    "slurm": _slurm,
}
_QUICK = ("command", "shells")  # this machine is in test_launch.py


@pytest.fixture(
    scope="module",
    params=[
        name if name in _QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in TRANSPORTS
    ],
)
def launcher(request):
    """A launcher over each transport, whose servers are warm."""
    with (
        TRANSPORTS[request.param](request) as engine,
        contextlib.closing(ServerLauncher(engine)) as launcher,
    ):
        yield launcher


@pytest.fixture
def launch(launcher, request_of, monkeypatch):
    """``launch(fault)``: the outcome of two ranks, each on a node of its own if there are nodes."""
    monkeypatch.setattr(rank_server, "GRACE_S", 1.0)

    def run(fault, *, request=lambda request: request, **suite):
        asked = request_of("faulty:build", {"fault": fault}, **suite)
        case = msgspec.structs.replace(asked.case, nodes=len(launcher.nodes(asked.case)) or 1)
        return launcher.launch(request(msgspec.structs.replace(asked, case=case)))

    return run


@pytest.fixture
def second(launcher):
    """The name of the node with rank 1; None: there is one node."""
    nodes = launcher.nodes(None)
    return nodes[1] if nodes else None


def test_a_launch_is_measured_and_its_files_are_brought(launch, second, tmp_path):
    outcome = launch(
        "nothing",
        request=lambda request: msgspec.structs.replace(
            request,
            output=str(tmp_path / "output"),
            profiling=Profiling(steps=1, directory=str(tmp_path / "traces")),
        ),
    )

    assert isinstance(outcome, LaunchResult), str(outcome)
    places = [rank.placement for rank in outcome.ranks]
    assert [(place.rank, place.node) for place in places] == [(0, 0), (1, 0 if not second else 1)]
    assert len({rank.digest for rank in outcome.ranks}) == 1
    assert outcome.ranks[0].structure.buckets == (1360,)
    assert "about to nothing\n" in (tmp_path / "output" / "rank1.out").read_text()
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {
        "rank0.json.gz",
        "rank1.json.gz",
    }


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("raise", "exception", "ValueError: the data are broken"),
        ("os-exit", "exit", "exited with code 3"),
        ("kill", "signal", "killed by SIGKILL"),
    ],
)
def test_a_rank_that_fails_is_named_with_its_cause(launch, second, fault, kind, words):
    outcome = launch(fault, **PATIENT)

    assert isinstance(outcome, LaunchFailure)
    assert (outcome.rank, outcome.kind, outcome.node) == (1, kind, second)
    assert words in outcome.detail
    assert f"about to {fault}" in outcome.output


@pytest.mark.parametrize(("fault", "state"), [("hang", "sleeping (S)"), ("stop", "stopped (T)")])
def test_a_silent_rank_is_found_by_its_deadline(launch, second, fault, state, tmp_path):
    outcome = launch(
        fault,
        step_deadline_s=1,
        request=lambda request: msgspec.structs.replace(request, records=str(tmp_path)),
    )

    assert (outcome.rank, outcome.kind, outcome.node) == (1, "hang", second)
    assert outcome.detail == f"hung in step 8 of 12: the process is {state}"
    if fault == "hang":
        assert "faulty.py" in outcome.stacks["rank 1"]
        assert json.loads((tmp_path / "rank1.json").read_text())


def test_a_server_that_dies_is_named_and_replaced(launch, second):
    outcome = launch("kill-server", **PATIENT)
    after = launch("nothing")

    assert (outcome.rank, outcome.kind, outcome.node) == (None, "server", second)
    assert "and its ranks with it" in outcome.detail or "ended" in outcome.detail
    assert isinstance(after, LaunchResult), str(after)


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def test_a_server_has_one_thread_and_listens_nowhere_and_ranks_of_one_machine_on_it_alone(
    launcher, request_of, tmp_path
):
    request = request_of("promises:build", {"note": str(tmp_path / "rank")})

    outcome = launcher.launch(request)

    assert isinstance(outcome, LaunchResult), str(outcome)
    for rank in (0, 1):
        found = json.loads((tmp_path / f"rank{rank}").read_text())
        assert (found["threads"], found["server"]) == (1, [])
        assert found["rank"]  # gloo, for its pairs
        assert set(found["rank"]) <= LOOPBACK


def test_launches_leave_no_process(launch):
    """Those of Slurm are no descendants of this process: test_slurm.py looks for them."""
    launch("nothing")
    before = _below(os.getpid())

    for fault in ("nothing", "raise"):
        launch(fault)

    assert _below(os.getpid()) == before


def _below(pid):
    """Return the descendants of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return {int(child) for child in children}.union(*(_below(int(child)) for child in children))


@pytest.mark.slow
def test_a_port_in_use_is_named_at_once(request_of, monkeypatch):
    monkeypatch.setattr(rank_server, "GRACE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        engine = Hosts(
            ["first", "second"], node_shell="env {node}=1 sh -c", endpoint=f"127.0.0.1:{port}"
        )
        asked = request_of("faulty:build", {"fault": "nothing"})
        case = msgspec.structs.replace(asked.case, nodes=2)
        with contextlib.closing(ServerLauncher(engine)) as launcher:
            outcome = launcher.launch(msgspec.structs.replace(asked, case=case))

    assert (outcome.kind, outcome.node) == ("server", "first")
    assert outcome.detail == (
        f"port {port} of 127.0.0.1 is in use: choose another: rdzv_endpoint of the cluster file"
    )


def test_a_node_that_cannot_be_reached_is_named():
    shell = "sh -c 'test {node} = here || exit 255; exec sh -c \"$0\"'"
    launcher = ServerLauncher(Hosts(["here", "gone"], node_shell=shell, endpoint="127.0.0.1:9"))

    with (
        contextlib.closing(launcher),
        pytest.raises(
            LaunchError, match=r"^node gone: no rank can be started there: .*: exit code 255"
        ),
    ):
        launcher.runtime()


_DRIVER = """
import sys
import msgspec
from ddp_perf.launch.engines.hosts import Hosts
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_request
from pathlib import Path
request = make_request("lingering:build", Path(sys.argv[3]),
                       model={"state": sys.argv[1], "pids": sys.argv[2]}, steps=10**6, warmup=1)
case = msgspec.structs.replace(request.case, nodes=2)
launcher = ServerLauncher(Hosts(["a", "b"], node_shell="env N={node} sh -c", endpoint=sys.argv[4]))
launcher.launch(msgspec.structs.replace(request, case=case))
"""


@pytest.fixture
def start(tmp_path):
    """``start(state)`` starts a driver of two nodes and waits until its ranks run.

    It returns the driver, and a pidfd of each server and rank.
    """
    pipe = tmp_path / "pids"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # also for writing: the first rank to close would end it
    drivers = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"

    def start(state):
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, state, pipe, WORKLOADS, endpoint],
            stderr=subprocess.DEVNULL,
            # A shell that runs the tests in the background has them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        drivers.append(driver)
        written = b""
        while written.count(b"\n") < 2:
            assert select.select([reader], [], [], 120)[0], "no rank started"
            written += os.read(reader, 4096)
        pids = {int(pid) for pid in written.split()}
        assert len(pids) == 4  # two ranks, two servers
        return driver, [os.pidfd_open(pid) for pid in pids]

    yield start
    for driver in drivers:
        driver.kill()
        driver.wait()
    os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["sleeping", "in-a-collective"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_driver_ends_the_servers_and_the_ranks_of_all_nodes(start, state, number):
    driver, running = start(state)
    end = time.monotonic() + 60

    driver.send_signal(number)

    assert driver.wait(timeout=60) != 0
    while running:
        ended = set(select.select(running, [], [], max(end - time.monotonic(), 0))[0])
        assert ended, "a process is left over"
        for descriptor in ended:
            os.close(descriptor)
        running = [one for one in running if one not in ended]
