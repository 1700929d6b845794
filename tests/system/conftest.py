"""Launches of this directory's workloads."""

from __future__ import annotations

from pathlib import Path

import pytest

import tests.late_imports  # noqa: F401
from ddp_perf.duel import touched
from ddp_perf.session.measure import machine
from ddp_perf.system.gpu.gpus import find_gpus
from ddp_perf.system.lease import LEASES
from tests.builders import FakeLauncher, make_launch, make_request
from tests.packages_once import versions_once
from tests.slurm_cluster import slurm_cluster
from tests.warm_launcher import WarmLauncher

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.fixture(scope="session", autouse=True)
def leases(tmp_path_factory):
    """Leases of this worker alone: a session does not wait for one of another worker.

    No time is judged here. GPUs are leased from all: two sessions cannot share their memory.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not find_gpus().gpus:
            patch.setenv(LEASES, str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture(scope="session")
def warm_launcher():
    launcher = WarmLauncher()
    yield launcher
    launcher.end()


@pytest.fixture(autouse=True)
def _inner_sessions_read_packages_once(monkeypatch):
    monkeypatch.setattr(touched, "versions_behind", versions_once)


@pytest.fixture(autouse=True)
def _inner_sessions_share_servers(warm_launcher, monkeypatch):
    monkeypatch.setattr(machine, "ServerLauncher", lambda: warm_launcher)


@pytest.fixture
def played_ranks(monkeypatch):
    """Launches of inner sessions are played: for a test of what no rank decides."""
    answer = FakeLauncher(lambda request: make_launch(request.case, request.round))
    monkeypatch.setattr(machine, "ServerLauncher", lambda: answer)


@pytest.fixture
def request_of():
    """A function that builds a launch of two ranks of a workload in workloads/."""

    def make(workload, model, **suite):
        patience = {"start_deadline_s": 60, "step_deadline_s": 30}
        return make_request(workload, WORKLOADS, model=model, **{**patience, **suite})

    return make


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A real Slurm of two nodes on this machine, which starts in a second."""
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
