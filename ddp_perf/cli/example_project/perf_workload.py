"""The workload of bench_configs/example.yaml: put your own model, loss and optimizer here."""

import torch
from torch import nn

from ddp_perf.workloads.workload import BuildContext, Workload


def build(context: BuildContext, *, width: int, depth: int) -> Workload:
    """Build what each rank trains. The suite file gives the arguments as `model`."""
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    return Workload(
        model=nn.Sequential(*layers).to(context.device),
        batch=(torch.randn(context.batch_size, width, device=context.device),),
        loss=lambda module, batch: module(batch[0]).square().mean(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
    )
