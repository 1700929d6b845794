"""A workload with additional work in one place of its steps, which the probe must find."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn

from ddp_perf.workloads.workload import BuildContext, Workload

_WAIT_S = 0.02


def build(context: BuildContext, *, more: str, width: int = 64, blocks: int = 2) -> Workload:
    """``more``: "nothing", "read", "collective", "late batch", "late rank" or "slow optimizer"."""
    layers = [nn.Linear(width, width) for _ in range(blocks)]
    model = nn.Sequential(*layers)
    inputs = torch.ones(context.batch_size, width)

    def batches():
        while True:
            if more == "late batch":
                time.sleep(_WAIT_S)
            yield (inputs,)

    def loss(module, batch):
        value = module(batch[0]).square().mean()
        if more == "read":
            value.item()
        if more == "collective":
            dist.all_reduce(torch.ones(1_000_000))
        if more == "late rank" and context.rank == 1:
            time.sleep(_WAIT_S)
        return value

    class Optimizer(torch.optim.SGD):
        def step(self, closure=None):
            until = time.thread_time() + _WAIT_S * (more == "slow optimizer")
            while time.thread_time() < until:
                pass
            return super().step(closure)

    return Workload(
        model=model,
        batch=batches(),
        loss=loss,
        optimizer=lambda parameters: Optimizer(parameters, lr=1e-3),
        blocks=tuple(layers),
    )
