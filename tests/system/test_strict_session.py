"""``--ddp-strict`` with ``--ddp-expect-devices``: every case that the expected devices can run must
be measured, and at least one.
"""

from __future__ import annotations

import pytest

from ddp_perf.errors import ExitCode
from tests.builders import FakeLauncher, make_capacity, make_gpu_machine, make_launch
from tests.projects import TINY, make_project

SMALL = TINY.replace("tier: cpu", "tier: gpu").replace("suite: tiny", "suite: small")
LINKS = """
suite: links
tier: gpu
collectives: [all_reduce]
sizes: [1MiB]
world_sizes: [2, 4]
steps: 8
warmup: 2
launches: 2
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """``session(gpus, *arguments)`` runs both suites strictly on so many GPUs."""
    monkeypatch.setattr(
        "ddp_perf.session.measure.machine.ServerLauncher",
        lambda: FakeLauncher(lambda request: make_launch(request.case, request.round)),
    )
    project = make_project(pytester, monkeypatch, small=SMALL, links=LINKS)

    def run(gpus, *arguments):
        machine = make_gpu_machine(*["NVIDIA H200"] * gpus, nvlinks=18)
        monkeypatch.setattr("ddp_perf.plugin.session.find_capacity", lambda: make_capacity(machine))
        return project.runpytest_inprocess(
            "-m", "gpu", "-k", "step_time", "--ddp-strict", "--save-baseline", "-rA", *arguments
        )

    return run


def test_a_suite_for_several_gpus_is_skipped_if_one_gpu_is_expected(session):
    done = session(1, "--ddp-expect-devices", "1")

    assert done.ret == pytest.ExitCode.OK
    assert "needs 2 CUDA devices, found 1" in done.stdout.str()
    assert "stored in" in done.stdout.str()


def test_a_suite_for_several_gpus_fails_if_more_gpus_are_expected(session):
    unstated = session(1)

    assert unstated.ret == ExitCode.UNDECIDED
    assert (
        "--ddp-strict: needs 2 CUDA devices, found 1, so it was not measured"
        in unstated.stdout.str()
    )
    assert "--ddp-expect-devices 2: found 1" in session(1, "--ddp-expect-devices", "2").stdout.str()


def test_a_session_that_can_measure_nothing_fails_with_any_expectation(session):
    done = session(1, "--ddp-expect-devices", "1", "--ddp-config", "bench_configs/links.yaml")

    assert done.ret == ExitCode.UNDECIDED
    assert "so it was not measured" in done.stdout.str()


def test_every_suite_must_be_measured_if_there_are_enough_gpus(session):
    done = session(4, "--ddp-expect-devices", "4")

    assert done.ret == pytest.ExitCode.OK
    assert "needs" not in done.stdout.str()
