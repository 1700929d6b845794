"""A model that leaves its core idle while it computes, like one on a GPU: its blocks sleep.

So communication can go on beside the backward, which on a core that computes by itself it
cannot. A file named ``trouble`` makes the timed steps longer in a way that no rule has.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from ddp_perf.workloads.workload import BuildContext, Workload

_EVERY = 4  # blocks that share one sleep: a sleep of less than a millisecond is none
_TROUBLE_S = 0.008


class _Device(torch.autograd.Function):
    """A layer that returns its input after this much device time."""

    @staticmethod
    def forward(context, values, forward_s, backward_s):
        context.backward_s = backward_s
        time.sleep(forward_s)
        return values.view_as(values)

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.backward_s)
        return gradient, None, None


class _Block(nn.Module):
    def __init__(self, width: int, sleeps: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.sleeps = sleeps

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.sleeps:
            values = _Device.apply(values, 0.0008, 0.0020)
        return torch.relu(self.linear(values))


def build(
    context: BuildContext, *, width: int, blocks: int, timed_steps: int, trouble: str
) -> Workload:
    """Build it. ``timed_steps`` is the number of steps that have the trouble."""
    model = nn.Sequential(*(_Block(width, i % _EVERY == 0) for i in range(blocks)))
    batch = (torch.ones(context.batch_size, width),)
    troubled = iter([True] * timed_steps if Path(trouble).exists() else [])

    def loss(module: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        if next(troubled, False):
            time.sleep(_TROUBLE_S)
        return module(batch[0]).square().mean()

    return Workload(
        model=model,
        batch=batch,
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    )
