"""The package's MLP as a user's workload. A switch adds sleep, a collective or busy processes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_perf.worker.injection.hog import burn_cores
from ddp_perf.workloads import mlp

_neighbours = []  # busy until the rank ends


def build(context, *, switch, hidden_dim=512):
    workload = mlp.build(context, input_dim=512, hidden_dim=hidden_dim, output_dim=64, num_layers=2)
    # Read from a file, not from the model's arguments: the work is to be the same case.
    change = Path(switch).read_text(encoding="utf-8").strip()
    if change == "neighbours":
        # Three: a rank that often waits for the other rank has little to fear from one.
        _neighbours.append(burn_cores(3))
        _neighbours[0].__enter__()

    def loss(module, batch):
        if change == "sleep":
            time.sleep(0.03)
        elif change == "all_reduce":
            dist.all_reduce(torch.ones(1024))
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
