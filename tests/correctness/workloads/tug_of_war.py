"""Two coordinates: large gradients that cancel between ranks hide a small one that counts."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ddp_perf.workloads.workload import Workload

PULL = 10.0  # of rank r on the first coordinate: + PULL or − PULL
GOAL = 1.0  # of the second one


class Point(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(2))

    def forward(self, pull: torch.Tensor) -> torch.Tensor:
        first, second = self.place
        return pull * first + (second - GOAL).square() / 2


def build(context, *, path, steps):
    """Writes down where the point is after ``steps`` steps; the mean loss is least at GOAL."""
    point = Point().to(context.device)
    step = 0

    def optimizer(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.02)
        optimizer.register_step_post_hook(lambda *_: record())
        return optimizer

    def record():
        nonlocal step
        step += 1
        if step == steps:
            torch.save(point.place.detach().cpu(), Path(path) / f"rank{context.rank}")

    pull = torch.tensor(PULL if context.rank % 2 else -PULL, device=context.device)
    return Workload(
        model=point,
        batch=(pull,),
        loss=lambda module, batch: module(batch[0]),
        optimizer=optimizer,
    )
