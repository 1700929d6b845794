"""Two entries of a matrix: large gradients that cancel over two steps hide a small one.

A hook that sends only the largest part of each gradient never sends the small one, unless it adds
the unsent part to the next gradient (error feedback).
"""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from torch import nn

from ddp_perf.workloads.workload import Workload

SIZE = 6  # square: large enough for PowerSGD to compress it to rank 1
PULL = 10.0  # on the entry (0, 0): + PULL and − PULL in turn
GOAL = 1.0  # of the entry (1, 1)
LEARNING_RATE = 0.02


class Point(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(SIZE, SIZE))

    def forward(self, pull: torch.Tensor) -> torch.Tensor:
        return pull * self.place[0, 0] + (self.place[1, 1] - GOAL).square() / 2


def build(context, *, path, steps):
    """Build it. Each rank records the matrix after each step; the mean loss is least at GOAL."""
    point = Point().to(context.device)
    places = []

    def optimizer(parameters):
        optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
        optimizer.register_step_post_hook(lambda *_: record())
        return optimizer

    def record():
        places.append(point.place.detach().cpu().clone())
        if len(places) == steps:
            torch.save(torch.stack(places), Path(path) / f"rank{context.rank}")

    pull = torch.tensor(PULL, device=context.device)
    return Workload(
        model=point,
        batch=itertools.cycle([(pull,), (-pull,)]),
        loss=lambda module, batch: module(batch[0]),
        optimizer=optimizer,
    )
