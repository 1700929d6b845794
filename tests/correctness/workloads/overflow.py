"""A loss whose float16 gradients overflow on rank 1, until GradScaler has lowered its scale."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from ddp_perf.workloads.workload import Workload


def build(context, *, path, steps):
    """Build it. Each rank writes how many of the first ``steps`` steps changed parameters."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to(context.device)
    large = 100.0 if context.rank == 1 else 1.0
    begun = updates = 0

    def loss(module, batch):
        nonlocal begun
        if begun == steps:
            (Path(path) / f"rank{context.rank}").write_text(str(updates))
        begun += 1
        return large * module(batch[0]).sum()

    def optimizer(parameters):
        optimizer = torch.optim.SGD(parameters, lr=1e-4)
        optimizer.register_step_post_hook(lambda *_: count())
        return optimizer

    def count():
        nonlocal updates
        updates += 1

    return Workload(
        model=model,
        batch=(torch.full((context.batch_size, 4), 0.5, device=context.device),),
        loss=loss,
        optimizer=optimizer,
        blocks=list(model),
    )
