"""A workload whose ranks have different numbers of batches, of different sizes (``Join``)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.distributed.algorithms.join import Join

from ddp_perf.workloads.workload import Workload
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of

BATCHES_OF_RANK_0 = 2


def build(context, *, path):
    """Build it. Each rank trains the wrapped module on all its batches and writes the gradients.

    This happens inside the first step; the test does not use later steps.
    """
    model = build_model("Mlp", "float64").to(context.device)
    done = False

    def loss(module, batch):
        nonlocal done
        if not done:
            gradients = _train_until_the_end(module, context)
            torch.save(gradients, Path(path) / f"rank{context.rank}")
            done = True
        return loss_of(module, batch)

    batch = tuple(part.to(context.device) for part in global_batch(0, "float64"))
    return Workload(model=model, batch=batch, loss=loss, optimizer=optimizer_of)


def share(batch, rank, world_size):
    """Return a rank's share of a batch; the last rank's share has one sample less."""
    shares = [part.chunk(world_size)[rank] for part in batch]
    return tuple(part[:-1] if rank == world_size - 1 else part for part in shares)


def _train_until_the_end(module, context):
    optimizer = optimizer_of(module.parameters())
    gradients = []
    with Join([module]):
        for step in range(BATCHES_OF_RANK_0 + context.rank):
            batch = share(global_batch(step, "float64"), context.rank, context.world_size)
            optimizer.zero_grad()
            loss_of(module, tuple(part.to(context.device) for part in batch)).backward()
            named = module.module.named_parameters()
            gradients.append({name: p.grad.cpu().clone() for name, p in named})
            optimizer.step()
    return gradients
