"""One forkserver for the tests of a worker process: it takes seconds to start, once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

# pytester forgets what a run in this process imported, and numpy refuses to come twice.
import ddp_perf.session.measure.suite  # noqa: F401
from ddp_perf.config.suite import Suite, Variant, cases_of
from ddp_perf.core.launch import LaunchRequest
from ddp_perf.launch.forkserver import ForkserverLauncher

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.fixture(scope="session")
def launcher():
    with contextlib.closing(ForkserverLauncher()) as launcher:
        yield launcher


@pytest.fixture
def request_of():
    """A launch of two ranks of a workload in workloads/, with changes to its suite."""

    def make(workload, model, **changes):
        fields = {
            "suite": "system",
            "tier": "cpu",
            "world_sizes": [2],
            "batch_sizes": [4],
            "steps": 12,
            "warmup": 2,
            "start_deadline_s": 60,
            "step_deadline_s": 30,
        }
        suite = Suite(workload=workload, model=model, **{**fields, **changes})
        return LaunchRequest(
            case=cases_of(Variant(suite=suite))[0], round=0, import_paths=(str(WORKLOADS),)
        )

    return make
