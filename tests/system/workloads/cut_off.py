"""A workload whose last rank cuts the network interface of its host in one of its steps."""

from __future__ import annotations

import subprocess
from dataclasses import replace

from ddp_perf.workloads import mlp


def build(context, *, interface, at_step=8):
    """Return the workload. No packet leaves the interface from that step on, and none arrives."""
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    step = 0

    def loss(module, batch):
        nonlocal step
        step += 1
        if step == at_step and context.rank == context.world_size - 1:
            subprocess.run(["ip", "link", "set", interface, "down"], check=True)
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
