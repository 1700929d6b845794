"""One forkserver for the tests of a worker process, and the launch of a workload by name."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from ddp_perf.config.suite import Suite, Variant, cases_of
from ddp_perf.core.result import LaunchResult
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import LaunchRequest

WORKLOADS = Path(__file__).parent / "workloads"


@pytest.fixture(scope="session")
def launcher():
    with contextlib.closing(ForkserverLauncher()) as launcher:
        yield launcher


@pytest.fixture
def launch(launcher):
    """``launch("probe:build", world_size, **changes of the suite)``: a launch that went well."""

    def run(workload, world_size, **changes):
        suite = {
            "suite": "correctness",
            "tier": "cpu",
            "workload": workload,
            "world_sizes": [world_size],
            "batch_sizes": [4],
            "steps": 8,
            "warmup": 1,
        }
        suite = msgspec.convert({**suite, **changes}, Suite)
        (case,) = cases_of(Variant(suite=suite))
        request = LaunchRequest(case=case, round=0, import_paths=(str(WORKLOADS),))
        outcome = launcher.launch(request)
        assert isinstance(outcome, LaunchResult), f"{outcome}\n{getattr(outcome, 'traceback', '')}"
        return outcome

    return run
