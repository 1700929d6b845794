"""A workload that writes its parameters down after a number of steps, in float64."""

from __future__ import annotations

from dataclasses import replace

import torch

from ddp_perf.workloads import mlp


def build(context, *, path, after_steps, ranks):
    """``ranks`` ranks' samples in all: each rank its own, or one rank those of all."""
    sizes = {"input_dim": 12, "hidden_dim": 16, "output_dim": 3, "num_layers": 3}
    workload = mlp.build(context, **sizes)
    workload.model.double()
    share = [context.rank] if context.world_size > 1 else range(ranks)
    parts = [_samples(context.batch_size * context.world_size // ranks, rank) for rank in share]
    batch = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    step = 0

    def loss(module, batch):
        nonlocal step
        if step == after_steps and context.rank == 0:
            torch.save([parameter.detach() for parameter in module.parameters()], path)
        step += 1
        return workload.loss(module, batch)

    return replace(workload, batch=batch, loss=loss)


def _samples(count, rank):
    generator = torch.Generator().manual_seed(100 + rank)
    inputs = torch.randn(count, 12, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(count, 3, generator=generator, dtype=torch.float64)
