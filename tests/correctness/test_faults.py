"""A hang and two kills, on either tier.

The rank is named, no process outlives the run, and the next launch succeeds.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.system.gpu.gpus import find_gpus
from tests.builders import make_request

WORKLOADS = Path(__file__).parents[1] / "system" / "workloads"
DEADLINE_S = {"cpu": 1, "gpu": 5}

_DRIVER = """
import sys
import msgspec
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.launch.server_launcher import ServerLauncher

ServerLauncher().launch(msgspec.json.decode(sys.argv[1], type=LaunchRequest))
"""


@pytest.fixture
def world_size(tier):
    """The number of ranks: two, or one on a machine with one GPU."""
    if tier == "cpu":
        return 2
    gpus = len(find_gpus().gpus)
    if not gpus:
        pytest.skip("needs 1 CUDA device, found 0")
    return min(2, gpus)


@pytest.fixture
def request_of(tier, world_size):
    """``request_of(…)``: the request for a launch of a workload that fails on purpose."""

    def make(workload, model, *, steps=12):
        return make_request(
            workload,
            WORKLOADS,
            model=model,
            tier=tier,
            world_sizes=[world_size],
            steps=steps,
            step_deadline_s=DEADLINE_S[tier],
        )

    return make


@pytest.fixture
def ask(request_of, world_size):
    """``ask("hang")``: the request for a launch whose last rank has that fault."""
    last = world_size - 1
    return lambda fault: request_of("faulty:build", {"fault": fault, "fault_rank": last})


def test_a_hang_is_detected_named_and_ended(launcher, ask, world_size, tmp_path):
    request = msgspec.structs.replace(ask("hang"), records=str(tmp_path / "hangs"))

    failure = launcher.launch(request)

    assert isinstance(failure, LaunchFailure), failure
    assert (failure.kind, failure.rank) == ("hang", world_size - 1)
    assert "faulty.py" in failure.stacks[f"rank {world_size - 1}"]
    if world_size > 1:
        assert "all_reduce" in failure.collectives["rank 0"]
    assert isinstance(launcher.launch(ask("nothing")), LaunchResult)


def test_a_killed_rank_is_named(launcher, ask, world_size):
    failure = launcher.launch(ask("kill"))

    assert isinstance(failure, LaunchFailure), failure
    assert (failure.kind, failure.rank) == ("signal", world_size - 1)
    assert "SIGKILL" in failure.detail
    assert isinstance(launcher.launch(ask("nothing")), LaunchResult)


def test_killing_the_driver_ends_its_ranks(request_of, world_size, tmp_path):
    pipe = tmp_path / "pids"
    os.mkfifo(pipe)
    model = {"state": "training", "pids": str(pipe)}
    request = request_of("lingering:build", model, steps=10**6)

    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, msgspec.json.encode(request)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        ended = [os.pidfd_open(pid) for pid in _pids(pipe, driver, world_size)]
    finally:
        driver.kill()
        driver.wait()

    for descriptor in ended:
        with os.fdopen(descriptor):
            assert select.select([descriptor], [], [], 30)[0], "a process outlived its driver"


def _pids(pipe, driver, ranks):
    """Return the process ids of ranks and forkserver, which each rank writes when it trains."""
    # Opened for both: with a reader only, the file would end when the first rank closes it.
    reader, gone = os.open(pipe, os.O_RDWR), os.pidfd_open(driver.pid)
    written = b""
    with os.fdopen(reader), os.fdopen(gone):
        while written.count(b"\n") < ranks:
            ready = select.select([reader, gone], [], [])[0]
            assert reader in ready, "the driver ended before its ranks trained"
            written += os.read(reader, 4096)
    return {int(pid) for pid in written.split()}
