"""No process outlives the run, even after SIGKILL of the driver in any state of the ranks."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parent / "workloads"

_DRIVER = """
import sys
import msgspec
from ddp_perf.config.cases import Variant, cases_of
from ddp_perf.config.suite import TrainingSuite
from ddp_perf.launch.engines.machine import UserCommand
from ddp_perf.launch.server_launcher import ServerLauncher
from ddp_perf.core.launch import LaunchRequest

suite = TrainingSuite(suite="orphans", tier="cpu", workload="lingering:build",
              model={"state": sys.argv[1], "pids": sys.argv[2]},
              world_sizes=[2], batch_sizes=[4], steps=10**6, warmup=1,
              step_deadline_s=float(sys.argv[4]))
sizes = {"input_dim": 16, "hidden_dim": 16, "output_dim": 4, "num_layers": 2}
short = msgspec.structs.replace(suite, workload="mlp", model=sizes, steps=4)
launcher = ServerLauncher(UserCommand(sys.argv[5])) if sys.argv[5:] else ServerLauncher()
try:
    for of in (suite, short):
        case, = cases_of(Variant(suite=of))
        request = LaunchRequest(case=case, round=0, import_paths=(sys.argv[3],))
        outcome = launcher.launch(request)
        print(msgspec.json.encode(outcome).decode(), flush=True)
    launcher.close()
except KeyboardInterrupt:
    launcher.close()
    sys.exit(130)
"""


@pytest.fixture
def start(tmp_path):
    """``start(state)`` starts a driver and waits until its ranks run.

    A busy machine takes seconds to start loaders, so the deadline of a step is a minute. It
    returns the driver, its forkserver's pid, and a pidfd of each process below the driver.
    """
    drivers, descriptors = [], []

    def start(state, step_deadline_s=60, *command):
        pipe = tmp_path / "pids"
        os.mkfifo(pipe)
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, state, pipe, WORKLOADS, str(step_deadline_s), *command],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            # A shell that runs the tests in the background has them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        drivers.append(driver)
        pids = _read_pids(pipe, os.pidfd_open(driver.pid))
        pipe.unlink()
        loaders = 2 if state == "loading" else 0
        assert len(pids) == 3 + loaders  # two ranks, one server
        (server,) = {pid for pid in pids if _parent(pid) not in pids}
        above = server
        while (above := _parent(above)) != driver.pid:
            pids.add(above)
        descriptors.extend(os.pidfd_open(pid) for pid in pids)
        return driver, server, descriptors

    yield start
    for driver in drivers:
        driver.kill()
        driver.communicate()
    for descriptor in descriptors:
        os.close(descriptor)


def _read_pids(pipe, driver):
    """Return the pids that both ranks write, or fail if the driver ends before."""
    # Read and write: with the read end alone, the first rank to close would end the file.
    reader, text = os.open(pipe, os.O_RDWR), b""
    while text.count(b"\n") < 2:
        ready, _, _ = select.select([reader, driver], [], [])
        assert reader in ready, "the driver ended before its ranks were under way"
        text += os.read(reader, 4096)
    os.close(reader)
    os.close(driver)
    return {int(pid) for pid in text.split()}


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def _ignores_sigterm(pid):
    (mask,) = re.findall(
        r"^SigIgn:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.MULTILINE
    )
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def _all_end(descriptors, within_s):
    """Return whether every process of a pidfd ends in time."""
    waiting = set(descriptors)
    while waiting:
        ended, _, _ = select.select(list(waiting), [], [], within_s)
        if not ended:
            return False
        waiting -= set(ended)
    return True


@pytest.mark.parametrize(
    "state",
    [
        "training",
        pytest.param("stopped", marks=pytest.mark.slow),
        pytest.param("loading", marks=pytest.mark.slow),
        pytest.param("sleeping", marks=pytest.mark.slow),
        pytest.param("in-a-collective", marks=pytest.mark.slow),
    ],
)
def test_sigkill_of_the_driver_ends_server_and_ranks(start, state):
    driver, _, descriptors = start(state)
    driver.kill()
    driver.wait()
    assert _all_end(descriptors, within_s=60)


@pytest.mark.slow
def test_the_next_driver_removes_the_files_of_one_ended_by_sigkill(start, tmp_path):
    driver, _, descriptors = start("training")
    (left,) = tmp_path.glob("ddp-perf-*")
    driver.kill()
    driver.wait()
    assert _all_end(descriptors, within_s=60)

    next_driver, _, _ = start("training")

    (own,) = tmp_path.glob("ddp-perf-*")
    assert own != left
    next_driver.send_signal(signal.SIGINT)
    next_driver.wait()
    assert not own.exists()


def test_an_interrupt_ends_server_and_ranks(start, tmp_path):
    driver, _, descriptors = start("training")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=60) == 130
    assert _all_end(descriptors, within_s=60)
    assert not list(tmp_path.glob("ddp-perf-*"))


_COMMAND = f"sh -c 'PATH={Path(sys.executable).parent}:$PATH; {{command}}; exit $?'"


@pytest.mark.parametrize("state", ["training", pytest.param("stopped", marks=pytest.mark.slow)])
def test_sigkill_of_the_driver_ends_what_runs_in_a_command(start, state):
    driver, _, descriptors = start(state, 60, _COMMAND)
    assert len(descriptors) == 4  # two ranks, their server, the shell
    driver.kill()
    driver.wait()
    assert _all_end(descriptors, within_s=60)


@pytest.mark.slow
def test_an_interrupt_ends_what_runs_in_a_command(start, tmp_path):
    driver, _, descriptors = start("training", 60, _COMMAND)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=60) == 130
    assert _all_end(descriptors, within_s=60)
    assert not list(tmp_path.glob("ddp-perf-*"))


@pytest.mark.slow
@pytest.mark.parametrize("state", ["training", "in-a-collective"])
def test_a_stopped_forkserver_is_noticed_by_the_deadline_of_a_step_and_replaced(start, state):
    driver, server, descriptors = start(state, step_deadline_s=5)

    os.kill(server, signal.SIGSTOP)

    failure, after = (json.loads(driver.stdout.readline()) for _ in range(2))
    assert _all_end(descriptors, within_s=60)
    assert (failure["type"], failure["kind"], failure["rank"]) == ("failure", "server", None)
    said = "gave no sign of life for 5 s: its process is stopped (T)"
    assert failure["detail"].startswith(f"the forkserver ({sys.executable}) {said}")
    assert "Check what stops processes there" in failure["detail"]
    assert after["type"] == "result"
    assert driver.wait() == 0


def test_the_driver_handles_a_sigterm_to_every_process_of_a_job(start):
    """A scheduler sends it to all processes. If the server ended, the launch would fail."""
    driver, server, _ = start("training")
    ranks = [
        int(pid)
        for pid in Path(f"/proc/{server}/task/{server}/children")
        .read_text(encoding="utf-8")
        .split()
    ]

    assert not _ignores_sigterm(driver.pid)
    assert _ignores_sigterm(server)
    assert len(ranks) == 2
    assert not any(_ignores_sigterm(rank) for rank in ranks)
