"""A workload whose samples are numbers. Every rank writes the samples that it trains on."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from ddp_perf.workloads.workload import Synthetic, Workload, batches


class _Numbers(Synthetic):
    def __getitem__(self, index):
        return (torch.tensor([float(index)]),)


def build(context, *, samples, notes):
    """Build it. Each rank writes a line of JSON for each batch to the file ``notes``.RANK."""
    file = Path(f"{notes}.{context.rank}")

    def loss(module, batch):
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([int(number) for number in batch[0]]) + "\n")
        return module(batch[0]).square().mean()

    return Workload(
        model=nn.Linear(1, 1),
        batch=batches(_Numbers(samples, make=None), context),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0),
    )
