"""Launches by a real torchrun: on this machine, and on two nodes that this machine plays."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchResult, Profiling
from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from ddp_perf.launch.nodes.torchrun import TorchrunEngine
from ddp_perf.session.result import read_results
from tests.projects import REPOSITORY, make_project

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.fixture(scope="module")
def torchrun():
    """A launcher by torchrun on this machine."""
    with contextlib.closing(NodeLauncher(TorchrunEngine())) as launcher:
        yield launcher


@pytest.fixture
def two_nodes():
    """A launcher by torchrun on two nodes, both of which are this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    engine = TorchrunEngine(
        hosts=("first", "second"), node_shell="env NODE={node} sh -c", endpoint=endpoint
    )
    with contextlib.closing(NodeLauncher(engine, nodes=2)) as launcher:
        yield launcher


def over_two_nodes(request):
    return msgspec.structs.replace(request, case=msgspec.structs.replace(request.case, nodes=2))


@pytest.mark.slow
def test_torchrun_measures_what_the_forkserver_measures(torchrun, launcher, request_of, tmp_path):
    request = msgspec.structs.replace(
        request_of("faulty:build", {"fault": "nothing"}),
        output=str(tmp_path / "output"),
        profiling=Profiling(steps=1, directory=str(tmp_path / "traces")),
    )

    outcome, forked = torchrun.launch(request), launcher.launch(request)

    assert isinstance(outcome, LaunchResult), str(outcome)
    for rank, same in zip(outcome.ranks, forked.ranks, strict=True):
        assert (rank.structure, rank.placement) == (same.structure, same.placement)
        # A launch on busy cores has more steps, and so may have the loss of one more.
        both = rank.losses.keys() & same.losses.keys()
        assert {"1", "8"} <= both
        assert [rank.losses[step] for step in both] == [same.losses[step] for step in both]
        assert rank.flops == same.flops
        assert len(rank.warmup_s) == len(same.warmup_s)
    assert (tmp_path / "output" / "rank1.out").read_text().startswith("about to nothing\n")
    assert {path.name for path in (tmp_path / "traces").iterdir()} == {
        "rank0.json.gz",
        "rank1.json.gz",
    }


@pytest.mark.parametrize("kind", ["launcher", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_a_daemon_of_a_rank_is_in_its_family_and_ends_with_the_launch(
    kind, request, request_of, tmp_path
):
    started = request_of("daemon:build", {"note": str(tmp_path / "daemon")})

    outcome = request.getfixturevalue(kind).launch(started)

    assert isinstance(outcome, LaunchResult), str(outcome)
    for rank in range(2):
        note = (tmp_path / f"daemon-{rank}").read_text()
        daemon, its_parent, parent_of_rank = map(int, note.split())
        assert its_parent == parent_of_rank  # below which a rank counts its family's CPU time
        assert not Path(f"/proc/{daemon}").exists()


@pytest.mark.slow
def test_on_one_node_the_rendezvous_is_a_private_file_and_no_port(torchrun, request_of, tmp_path):
    note = tmp_path / "rendezvous"

    outcome = torchrun.launch(request_of("meeting:build", {"note": str(note)}))

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert b"torch.rendezvous." in note.read_bytes()  # the key of the pickled state


def test_the_versions_are_those_of_the_forkserver(torchrun, launcher):
    assert torchrun.runtime() == launcher.runtime()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("raise", "exception", "ValueError: the data are broken"),
        ("os-exit", "exit", "exited with code 3"),
        ("kill", "signal", "killed by SIGKILL"),
    ],
)
def test_a_rank_that_fails_is_named_with_its_cause(torchrun, request_of, fault, kind, words):
    patient = {"start_deadline_s": 600, "step_deadline_s": 600}  # no deadline ends it

    outcome = torchrun.launch(request_of("faulty:build", {"fault": fault}, **patient))

    assert isinstance(outcome, LaunchFailure)
    assert (outcome.rank, outcome.kind, outcome.node) == (1, kind, None)
    assert words in outcome.detail
    assert f"about to {fault}" in outcome.output


@pytest.mark.slow
def test_a_silent_rank_is_found_by_its_deadline(torchrun, request_of, tmp_path):
    request = request_of("faulty:build", {"fault": "hang"}, step_deadline_s=1)

    outcome = torchrun.launch(msgspec.structs.replace(request, records=str(tmp_path)))

    assert (outcome.rank, outcome.kind) == (1, "hang")
    assert outcome.detail == "hung in step 8 of 12: the process is sleeping (S)"
    assert "faulty.py" in outcome.stacks["rank 1"]
    assert "all_reduce" in outcome.collectives["rank 0"]
    assert json.loads((tmp_path / "rank0.json").read_text())


@pytest.mark.slow
def test_a_killed_torchrun_is_reported(torchrun, request_of):
    outcome = torchrun.launch(request_of("faulty:build", {"fault": "kill-server"}))

    assert (outcome.rank, outcome.kind) == (None, "server")
    assert outcome.detail == "torchrun was killed by signal 9, and its ranks with it"


def test_two_nodes_measure_one_launch(two_nodes, request_of):
    outcome = two_nodes.launch(over_two_nodes(request_of("faulty:build", {"fault": "nothing"})))

    assert isinstance(outcome, LaunchResult), str(outcome)
    places = [rank.placement for rank in outcome.ranks]
    assert [(place.rank, place.node) for place in places] == [(0, 0), (1, 1)]
    assert places[0].cores == places[1].cores  # each is the first rank of its node


@pytest.mark.slow
def test_the_node_of_a_killed_rank_is_named(two_nodes, request_of):
    outcome = two_nodes.launch(over_two_nodes(request_of("faulty:build", {"fault": "kill"})))

    assert (outcome.rank, outcome.kind) == (1, "signal")
    assert outcome.node in ("first", "second")  # torchrun chooses which one has rank 1


@pytest.mark.slow
def test_the_node_of_a_hung_rank_is_named(two_nodes, request_of):
    request = request_of("faulty:build", {"fault": "hang"}, step_deadline_s=1)

    outcome = two_nodes.launch(over_two_nodes(request))

    assert (outcome.rank, outcome.kind) == (1, "hang")
    assert outcome.node in ("first", "second")
    assert "step 8 of 12" in outcome.detail


@pytest.mark.slow
def test_a_port_in_use_is_named_at_once(request_of):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        engine = TorchrunEngine(
            hosts=("first", "second"), node_shell="env {node}=1 sh -c", endpoint=f"127.0.0.1:{port}"
        )
        request = over_two_nodes(request_of("faulty:build", {"fault": "nothing"}))

        outcome = NodeLauncher(engine, nodes=2).launch(request)

    assert (outcome.kind, outcome.node) == ("server", "first")
    assert outcome.detail == (
        f"port {port} of 127.0.0.1 is in use: choose another: rdzv_endpoint of the cluster file"
    )


@pytest.mark.slow
def test_options_in_the_environment_of_a_training_job_change_no_launch(
    torchrun, request_of, monkeypatch
):
    """PyTorchJob of Kubeflow sets them for the torchrun of the user's own job."""
    monkeypatch.setenv("PET_NNODES", "2")
    monkeypatch.setenv("PET_NO_PYTHON", "1")

    outcome = torchrun.launch(request_of("faulty:build", {"fault": "nothing"}))

    assert isinstance(outcome, LaunchResult), str(outcome)


@pytest.mark.slow
def test_a_node_that_cannot_be_reached_is_named(request_of):
    engine = TorchrunEngine(
        hosts=("here", "gone"),
        node_shell="sh -c 'test {node} = here || exit 255; exec sh -c \"$0\"'",
        endpoint="127.0.0.1:9",
    )

    with pytest.raises(LaunchError, match="node gone: no rank can be started there: exit code 255"):
        NodeLauncher(engine, nodes=2).runtime()


_DRIVER = """
import sys
from ddp_perf.launch.nodes.node_launcher import NodeLauncher
from ddp_perf.launch.nodes.torchrun import TorchrunEngine
from tests.builders import make_request
from pathlib import Path
request = make_request("lingering:build", Path(sys.argv[3]),
                       model={"state": sys.argv[1], "pids": sys.argv[2]}, steps=10**6, warmup=1)
NodeLauncher(TorchrunEngine()).launch(request)
"""


@pytest.fixture
def start(tmp_path):
    """``start(state)`` starts a driver and waits until its ranks run.

    It returns the driver, and the pids of its torchrun and ranks.
    """
    pipe = tmp_path / "pids"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # also for writing: the first rank to close would end it
    drivers = []

    def start(state):
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, state, pipe, WORKLOADS],
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
        assert len(pids) == 3  # two ranks, one torchrun
        return driver, pids

    yield start
    for driver in drivers:
        driver.kill()
        driver.wait()
    os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["sleeping", "in-a-collective"])
def test_sigkill_of_the_driver_ends_torchrun_and_ranks(start, state):
    driver, pids = start(state)
    running = {os.pidfd_open(pid) for pid in pids}

    driver.kill()

    while running:
        ended = set(select.select(list(running), [], [], 60)[0])
        assert ended, "a process is left over"
        for descriptor in ended:
            os.close(descriptor)
        running -= ended


@pytest.mark.slow
def test_an_interrupted_driver_ends_torchrun_and_ranks_before_itself(start):
    driver, pids = start("sleeping")

    driver.send_signal(signal.SIGINT)

    assert driver.wait(timeout=60) != 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_a_session_by_torchrun_has_the_ids_and_the_structures_of_the_forkserver(
    pytester, monkeypatch
):
    """The structures are the stored ones, which the forkserver measured."""
    suite = (REPOSITORY / "bench_configs" / "cpu_quick.yaml").read_text(encoding="utf-8")
    project = make_project(pytester, monkeypatch, cpu_quick=suite)
    shutil.copytree(
        REPOSITORY / "baselines" / "structure", project.path / "baselines" / "structure"
    )
    work = ("--ddp-batch-sizes=64", "--ddp-steps=8", "--ddp-launches=1")
    chosen = ("-m", "perf and cpu", "-k", "structure", "--ddp-budget=0", *work)

    result = project.runpytest_subprocess(*chosen, "--ddp-launcher=torchrun", "--ddp-json=r.json")
    collected = project.runpytest_subprocess(*chosen, "--collect-only", "-q")

    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    (found,) = read_results(project.path / "r.json").suites
    assert {one.case.launcher for one in found.measurements.values()} == {"torchrun"}
    ids = [line.partition("[")[2][:-1] for line in collected.outlines if "[" in line]
    assert (
        sorted(found.measurements)
        == sorted(ids)
        == [
            "mlp-ddp-fp32-ws2-b64",
            "mlp-none-fp32-ws1-b64",
        ]
    )
