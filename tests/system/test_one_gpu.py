"""A machine with a GPU: the forkserver does not initialise CUDA, and CPU ranks see no GPU.

The GPU is simulated: see one_gpu/sitecustomize.py.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.strategy import PostLocalSgdHook, PowerSgdHook
from ddp_perf.errors import LaunchError
from ddp_perf.launch.engines.machine import ThisMachine
from ddp_perf.launch.server_launcher import ServerLauncher
from tests.builders import make_case

ONE_GPU = Path(__file__).parent / "one_gpu"


def launcher_on_one_gpu(**environ):
    environ = {**os.environ, "PYTHONPATH": str(ONE_GPU), **environ}
    return contextlib.closing(ServerLauncher(ThisMachine(environ=environ)))


@pytest.fixture(scope="module")
def launcher():
    with launcher_on_one_gpu() as launcher:
        yield launcher


@pytest.mark.parametrize(
    "workload",
    [
        "mlp",
        pytest.param("distilbert", marks=pytest.mark.slow),
        pytest.param("text_transformer", marks=pytest.mark.slow),
        pytest.param("resnet50", marks=pytest.mark.slow),
    ],
)
def test_the_forkserver_serves_without_initialising_cuda(launcher, workload):
    if workload in ("distilbert", "resnet50"):
        pytest.importorskip("transformers")

    runtime = launcher.runtime(make_case(workload=workload))

    assert (runtime.cuda, runtime.cudnn) == ("12.8", "91900")


@pytest.mark.slow
def test_a_forkserver_that_initialised_cuda_is_refused_in_one_line():
    with (
        launcher_on_one_gpu(INITIALISE_CUDA="1") as launcher,
        pytest.raises(LaunchError, match="CUDA was initialised before ranks were forked") as caught,
    ):
        launcher.runtime(make_case())

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mask", [None, pytest.param("0", marks=pytest.mark.slow)])
def test_ranks_of_the_cpu_tier_see_no_gpu(request_of, mask):
    environ = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    with launcher_on_one_gpu(**environ) as launcher:
        outcome = launcher.launch(request_of("gpu_seen:build", {}))

    assert isinstance(outcome, LaunchResult), str(outcome)
    assert {rank.placement.cuda_visible_devices for rank in outcome.ranks} == {None}


@pytest.mark.parametrize(
    ("hook", "world_size"),
    [(PowerSgdHook(rank=2), 2), (PostLocalSgdHook(group_size=2, period=2), 4)],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_hooks_that_wait_for_any_gpu_work_over_gloo(launcher, request_of, hook, world_size):
    sizes = {"input_dim": 64, "hidden_dim": 64, "output_dim": 8, "num_layers": 2}

    outcome = launcher.launch(request_of("mlp", sizes, comm_hooks=[hook], world_sizes=[world_size]))

    assert isinstance(outcome, LaunchResult), str(outcome)
