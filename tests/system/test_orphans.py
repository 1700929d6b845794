"""Nobody outlives the run: not after SIGKILL of the driver, whatever the ranks are doing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parent / "workloads"

_DRIVER = """
import sys
from ddp_perf.config.suite import Suite, Variant, cases_of
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.core.launch_request import LaunchRequest

suite = Suite(suite="orphans", tier="cpu", workload="lingering:build",
              model={"state": sys.argv[1], "pids": sys.argv[2]},
              world_sizes=[2], batch_sizes=[4], steps=10**6, warmup=1)
launcher = ForkserverLauncher()
request = LaunchRequest(case=cases_of(Variant(suite=suite))[0], round=0,
                        import_paths=(sys.argv[3],))
try:
    launcher.launch(request)
except KeyboardInterrupt:
    launcher.close()
    sys.exit(130)
"""


@pytest.fixture
def start(tmp_path):
    """Starts a driver; gives it, amid a launch, and a pidfd of each rank and the forkserver."""
    drivers, descriptors = [], []

    def start(state):
        pipe = tmp_path / "pids"
        os.mkfifo(pipe)
        driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, state, pipe, WORKLOADS],
            # A shell that runs the tests in the background has them ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        drivers.append(driver)
        pids = _told_pids(pipe, os.pidfd_open(driver.pid))
        loaders = 2 if state == "loading" else 0
        assert len(pids) == 3 + loaders  # two ranks, one forkserver
        descriptors.extend(os.pidfd_open(pid) for pid in pids)
        return driver, descriptors

    yield start
    for driver in drivers:
        driver.kill()
        driver.wait()
    for descriptor in descriptors:
        os.close(descriptor)


def _told_pids(pipe, driver):
    """The pids that both ranks write; the driver's end would be the end of waiting."""
    # Read and write: with the read end alone, the first rank to close would end the file.
    reader, told = os.open(pipe, os.O_RDWR), b""
    while told.count(b"\n") < 2:
        ready, _, _ = select.select([reader, driver], [], [])
        assert reader in ready, "the driver ended before its ranks were under way"
        told += os.read(reader, 4096)
    os.close(reader)
    os.close(driver)
    return {int(pid) for pid in told.split()}


def _all_end(descriptors, within_s):
    """Whether every process behind a pidfd ends in time; waits on nothing else."""
    waiting = set(descriptors)
    while waiting:
        ended, _, _ = select.select(list(waiting), [], [], within_s)
        if not ended:
            return False
        waiting -= set(ended)
    return True


@pytest.mark.parametrize("state", ["training", "loading", "sleeping", "stopped", "in-a-collective"])
def test_sigkill_of_the_driver_ends_everything(start, state):
    driver, descriptors = start(state)
    driver.kill()
    driver.wait()
    assert _all_end(descriptors, within_s=60)


def test_an_interrupt_ends_everything(start):
    driver, descriptors = start("training")
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=60) == 130
    assert _all_end(descriptors, within_s=60)
