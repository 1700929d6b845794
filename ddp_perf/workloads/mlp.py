"""The feed-forward network of the DDP scaling experiments (document 000): Linear and ReLU in turn.

The document states the widths. This suite chose the loss and the optimizer.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.workloads.workload import Batch, BuildContext, Synthetic, Workload, batches

_SAMPLES = 2**17


def build(
    context: BuildContext, *, input_dim: int, hidden_dim: int, output_dim: int, num_layers: int
) -> Workload:
    """Build it with random inputs and targets, the mean squared error and SGD."""
    sizes = [input_dim, *[hidden_dim] * (num_layers - 1), output_dim]
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).to(context.device)

    def sample(generator: torch.Generator) -> Batch:
        return (
            torch.randn(input_dim, generator=generator),
            torch.randn(output_dim, generator=generator),
        )

    return Workload(
        model=model,
        batch=batches(Synthetic(_SAMPLES, sample), context),
        loss=_loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        blocks=[layer for layer in model if isinstance(layer, nn.Linear)],
    )


def _loss(module: nn.Module, batch: Batch) -> torch.Tensor:
    inputs, targets = batch
    return functional.mse_loss(module(inputs), targets)
