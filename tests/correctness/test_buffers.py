"""BatchNorm: each rank normalises by its own samples; broadcasting its buffers is an option."""

from __future__ import annotations

import pytest
import torch

from tests.correctness.training import STEPS, TOLERANCES, relative_error
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of

MOMENTUM = 0.1  # BatchNorm's own


def batch_mean(step, rank):
    inputs, _ = global_batch(step, "float64")
    return inputs.chunk(2)[rank].mean(0)


def running_means(rank, *, broadcast):
    """Yield the running mean of each step, updated from rank 0's or the rank's own one before."""
    means = [torch.zeros(12, dtype=torch.float64)] * 2
    for step in range(STEPS):
        before = [means[0]] * 2 if broadcast else means
        means = [(1 - MOMENTUM) * before[r] + MOMENTUM * batch_mean(step, r) for r in range(2)]
        yield means[rank]


@pytest.mark.parametrize("broadcast", [True, False])
def test_running_statistics_are_those_of_rank_0_only_if_broadcast(trained, broadcast):
    ranks = trained("Normalised", 2, ddp={"broadcast_buffers": broadcast}).ranks

    for rank, record in enumerate(ranks):
        seen = [buffers["norm.running_mean"] for buffers in record.buffers]
        expected = running_means(rank, broadcast=broadcast)
        for actual, wanted in zip(seen, expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("broadcast", [True, False])
def test_broadcasting_buffers_adds_a_collective(trained, broadcast):
    structure = trained("Normalised", 2, ddp={"broadcast_buffers": broadcast}).structure

    broadcasts = [c for c in structure.collectives if c.kind == "broadcast"]
    assert bool(broadcasts) == broadcast


@pytest.mark.parametrize("options", [{}, {"broadcast_buffers": False}, {"static_graph": True}])
def test_gradients_are_the_mean_over_the_ranks(trained, options):
    """They differ from those of the whole batch, whose mean and variance are different."""
    module = build_model("Normalised", "float64")
    optimizer = optimizer_of(module.parameters())
    records = trained("Normalised", 2, ddp=options).ranks

    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(2):
            batch = tuple(part.chunk(2)[rank] for part in global_batch(step, "float64"))
            (loss_of(module, batch) / 2).backward()
        expected = {name: p.grad.clone() for name, p in module.named_parameters()}
        optimizer.step()
        for record in records:
            assert relative_error(record.gradients[step], expected) < TOLERANCES["float64"]
