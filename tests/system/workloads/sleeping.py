"""A workload that computes by sleeping, so that ranks without a core of their own are alike."""

from __future__ import annotations

import time
from dataclasses import replace

from ddp_perf.workloads import mlp


def build(context, *, seconds, width):
    """Return the workload, with gradients of about 4 × ``width``² bytes."""
    workload = mlp.build(context, input_dim=width, hidden_dim=width, output_dim=4, num_layers=2)

    def loss(module, batch):
        time.sleep(seconds)
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
