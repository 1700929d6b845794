"""Uneven shares: a smaller last batch, and ranks with fewer batches than others."""

from __future__ import annotations

import pytest
import torch

from tests.correctness.training import FOUR, TOLERANCES, launch, relative_error
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of
from tests.correctness.workloads.uneven import BATCHES_OF_RANK_0, share

DDP_OPTIONS = [
    pytest.param({}, id="defaults"),
    pytest.param({"gradient_as_bucket_view": True}, id="gradient_as_bucket_view"),
    pytest.param({"bucket_cap_mb": 0.001}, id="small_buckets"),
]


def gradients(launcher, case_of, tmp_path, world_size, **fields):
    """Launch the case and return the gradients of each rank, step by step."""
    case = case_of("uneven:build", world_size, {"path": str(tmp_path)}, **fields)
    outcome = launch(launcher, case)
    assert not isinstance(outcome, Exception), outcome
    return [torch.load(tmp_path / f"rank{rank}") for rank in range(world_size)]


@pytest.mark.parametrize("options", DDP_OPTIONS)
@pytest.mark.parametrize("world_size", [2, FOUR])
def test_a_rank_without_batches_counts_as_zero(launcher, case_of, tmp_path, world_size, options):
    """Under ``Join`` rank r has one batch more than rank r − 1; the mean is over all ranks."""
    ranks = gradients(launcher, case_of, tmp_path, world_size, ddp=options)
    module = build_model("Mlp", "float64")
    optimizer = optimizer_of(module.parameters())

    for step in range(BATCHES_OF_RANK_0 + world_size - 1):
        optimizer.zero_grad()
        active = [r for r in range(world_size) if step < BATCHES_OF_RANK_0 + r]
        for rank in active:
            batch = share(global_batch(step, "float64"), rank, world_size)
            (loss_of(module, batch) / world_size).backward()
        expected = {name: p.grad.clone() for name, p in module.named_parameters()}
        optimizer.step()
        for rank in active:
            assert relative_error(ranks[rank][step], expected) < TOLERANCES["float64"]
    assert [len(steps) for steps in ranks] == [BATCHES_OF_RANK_0 + r for r in range(world_size)]
