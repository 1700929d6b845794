"""Many steps on one batch equal one process; on GPUs they replay a CUDA graph."""

from __future__ import annotations

import pytest
import torch

from ddp_perf.core.launch import LaunchResult
from tests.correctness.training import launch, relative_error
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of

STEPS = 40  # most of them after the capture


def trained_plainly(model):
    """Return the parameters after STEPS steps of one process, in float64."""
    module, batch = build_model(model, "float64"), global_batch(0, "float64")
    optimizer = optimizer_of(module.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(module, batch).backward()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("model", ["Mlp", "Transformer"])
@pytest.mark.parametrize(("strategy", "world_size"), [("none", 1), ("ddp", 1), ("ddp", 2)])
def test_training_on_a_fixed_batch_equals_one_process(
    launcher, case_of, tier, tmp_path, model, strategy, world_size
):
    arguments = {"path": str(tmp_path), "model": model, "steps": STEPS}
    on_gpus = {"strategy": strategy, "steps": STEPS, "cuda_graphs": tier == "gpu"}

    result = launch(launcher, case_of("fixed:build", world_size, arguments, **on_gpus))

    assert isinstance(result, LaunchResult), f"{result}\n{getattr(result, 'traceback', '')}"
    expected = trained_plainly(model)
    for rank in range(world_size):
        assert relative_error(torch.load(tmp_path / f"rank{rank}"), expected) < 1e-12
