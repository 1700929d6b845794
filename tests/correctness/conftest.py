"""Launches of real ranks from one forkserver, over gloo, and over NCCL if there are GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.system.capacity import find_capacity
from tests.builders import make_request
from tests.correctness import training
from tests.correctness.training import STEPS, Trained, make_training_case, train
from tests.torch_versions import skip_if_shards_need_a_gpu

WORKLOADS = Path(__file__).parent / "workloads"
# The fields of a test that are arguments of the recorded workload. The others are the suite's.
MODEL_ARGUMENTS = {"dtype", "seed_by_rank", "first_step", "save_to", "load_from"}


@pytest.fixture(scope="session", params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def tier(request):
    return request.param


@pytest.fixture(scope="session")
def case_of(tier) -> Callable[..., Case]:
    """``case_of(…)``: a case of this tier. It skips the test if there are not enough GPUs."""
    capacity = find_capacity()

    def make(workload: str, world_size: int, model: dict[str, Any], **suite: Any) -> Case:
        case = make_training_case(workload, world_size, model, tier=tier, **suite)
        if tier == "gpu" and (obstacle := capacity.obstacle(case)):
            pytest.skip(obstacle)  # four ranks may share two cores, since nothing is timed here
        if tier == "cpu":
            skip_if_shards_need_a_gpu(case)
        return case

    return make


@pytest.fixture(scope="session")
def trained(launcher, nodes_launcher, case_of, tmp_path_factory) -> Callable[..., Trained]:
    """``trained("Mlp", 2, steps=4, strategy="fsdp", …)``: a trained case; each is launched once."""
    done: dict[str, Trained] = {}

    def run(
        model: str,
        world_size: int,
        *,
        steps: int = STEPS,
        workload: str = "recorded",
        **fields: Any,
    ) -> Trained:
        key = repr((model, world_size, steps, workload, sorted(fields.items())))
        if key not in done:
            directory = tmp_path_factory.mktemp("ranks")
            arguments = {"path": str(directory), "model": model, "steps": steps}
            for name in MODEL_ARGUMENTS & fields.keys():
                arguments[name] = fields.pop(name)
            case = case_of(f"{workload}:build", world_size, arguments, steps=steps, **fields)
            of_case = nodes_launcher if case.nodes > 1 else launcher
            done[key] = train(of_case, case, directory)
        return done[key]

    return run


@pytest.fixture(scope="session")
def failure(launcher, case_of) -> Callable[..., LaunchFailure]:
    """``failure(…)``: the failure in which the launch must end."""

    def run(workload: str, world_size: int, model: dict[str, Any], **suite: Any) -> LaunchFailure:
        outcome = training.launch(launcher, case_of(workload, world_size, model, **suite))
        assert isinstance(outcome, LaunchFailure)
        return outcome

    return run


@pytest.fixture
def launch(launcher):
    """``launch("probe:build", world_size, **changes of the suite)``: a launch without failure."""

    def run(workload, world_size, **suite):
        few_steps = {"world_sizes": [world_size], "steps": 8, "warmup": 1}
        outcome = launcher.launch(make_request(workload, WORKLOADS, **{**few_steps, **suite}))
        assert isinstance(outcome, LaunchResult), f"{outcome}\n{getattr(outcome, 'traceback', '')}"
        return outcome

    return run
