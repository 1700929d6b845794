"""What is timed must first be right: DDP trains as one process on the whole batch does."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch

from ddp_perf.config.suite import Suite, Variant, cases_of
from ddp_perf.core.result import LaunchResult
from ddp_perf.launch.forkserver import ForkserverLauncher
from ddp_perf.launch.launcher import LaunchRequest

WORKLOADS = Path(__file__).parent / "workloads"
STEPS = 6


@pytest.fixture(scope="module")
def launcher():
    with contextlib.closing(ForkserverLauncher()) as launcher:
        yield launcher


def _parameters_after(launcher, path, world_size, ranks, ddp=None):
    """Parameters of rank 0 after STEPS steps on the samples of ``ranks`` ranks."""
    suite = Suite(
        suite="correctness",
        tier="cpu",
        workload="probe:build",
        model={"path": str(path), "after_steps": STEPS, "ranks": ranks},
        **({"ddp": ddp} if ddp else {}),
        world_sizes=[world_size],
        batch_sizes=[4 * ranks // world_size],
        steps=STEPS + 2,
        warmup=1,
    )
    (case,) = cases_of(Variant(suite=suite))
    request = LaunchRequest(case=case, round=0, import_paths=(str(WORKLOADS),))
    outcome = launcher.launch(request)
    assert isinstance(outcome, LaunchResult), str(outcome)
    return torch.load(path)


@pytest.mark.parametrize("world_size", [2, 4])
def test_ddp_equals_one_process_on_the_whole_batch(launcher, tmp_path, world_size):
    """In float64, where the order of a sum is worth 1e-15 a step."""
    alone = _parameters_after(launcher, tmp_path / "alone", 1, world_size)
    together = _parameters_after(launcher, tmp_path / "together", world_size, world_size)
    for expected, actual in zip(alone, together, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
        {"broadcast_buffers": False},
        {"find_unused_parameters": True},
        {"bucket_cap_mb": 0.001},
    ],
    ids=lambda options: next(iter(options)),
)
def test_no_ddp_option_changes_the_result(launcher, tmp_path, options):
    from ddp_perf.core.strategy import DdpOptions

    plain = _parameters_after(launcher, tmp_path / "plain", 2, 2)
    changed = _parameters_after(launcher, tmp_path / "changed", 2, 2, DdpOptions(**options))
    for expected, actual in zip(plain, changed, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_training_moves_the_parameters(launcher, tmp_path):
    """The comparison above would also hold of ranks that never train."""
    trained = _parameters_after(launcher, tmp_path / "trained", 2, 2)
    torch.manual_seed(0)
    first = torch.nn.Linear(12, 16).double().weight
    assert not torch.allclose(trained[0], first)
