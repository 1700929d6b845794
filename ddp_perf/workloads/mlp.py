"""The feed-forward network of the DDP scaling experiments: Linear and ReLU in turn."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.workloads.workload import Batch, BuildContext, Workload


def build(
    context: BuildContext, *, input_dim: int, hidden_dim: int, output_dim: int, num_layers: int
) -> Workload:
    """Random inputs and targets, made once on the device; mean squared error; SGD."""
    sizes = [input_dim, *[hidden_dim] * (num_layers - 1), output_dim]
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).to(context.device)

    # Every rank its own samples, the same ones in every launch.
    generator = torch.Generator().manual_seed(context.rank)
    shape = (context.batch_size, input_dim)
    inputs = torch.randn(shape, generator=generator).to(context.device)
    targets = torch.randn(context.batch_size, output_dim, generator=generator).to(context.device)
    return Workload(
        model=model,
        batch=(inputs, targets),
        loss=_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    )


def _loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    inputs, targets = batch
    return functional.mse_loss(module(inputs), targets)
