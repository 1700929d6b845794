"""A workload that counts the forwards of a block."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ddp_perf.workloads.workload import Workload


class Counted(nn.Linear):
    forwards = 0

    def forward(self, inputs):
        self.forwards += 1
        return super().forward(inputs)


def build(context, *, path, after_steps):
    """Build it. Each rank writes how often the block ran in the first ``after_steps`` steps."""
    block = Counted(4, 4)
    model = nn.Sequential(nn.Linear(4, 4), block).to(context.device)
    steps = 0

    def loss(module, batch):
        nonlocal steps
        if steps == after_steps:
            (Path(path) / f"rank{context.rank}").write_text(str(block.forwards))
        steps += 1
        return module(batch[0]).square().mean()

    return Workload(
        model=model,
        batch=(torch.ones(context.batch_size, 4, device=context.device),),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        blocks=[block],
    )
