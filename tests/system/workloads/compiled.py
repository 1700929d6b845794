"""A workload whose forward, or whose batches, torch.compile cannot capture as one graph."""

from __future__ import annotations

import torch
from torch import nn

from ddp_perf.workloads.workload import BuildContext, Workload


class Scaled(nn.Module):
    def __init__(self, more: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.more = more

    def forward(self, x):
        x = self.first(x).relu()
        if self.more == "read":
            x = x + x.sum().item()
        if self.more == "print":
            print(end="")
        return self.second(x)


def build(context: BuildContext, *, more: str) -> Workload:
    """``more``: "nothing", "read", "print", "growing batch" or "own"."""
    model = Scaled(more)
    by_itself = torch.compile(torch.square) if more == "own" else torch.square

    def batches():
        size = context.batch_size
        while True:
            yield (torch.ones(size, 8),)
            size += more == "growing batch"

    return Workload(
        model=model,
        batch=batches(),
        loss=lambda module, batch: by_itself(module(batch[0])).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        blocks=[model.first, model.second],
    )
