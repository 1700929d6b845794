"""A workload that notes, in every step of every rank, what an injection may change."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from ddp_perf.torch_compat import flight_recorder_entries
from ddp_perf.workloads import mlp


def build(context, *, notes, width=32):
    """One line of JSON a step in the file ``notes``.RANK."""
    workload = mlp.build(
        context, input_dim=width, hidden_dim=width, output_dim=width, num_layers=4
    )
    file = Path(f"{notes}.{context.rank}").open("w")
    step = {}

    def loss(module, batch):
        value = workload.loss(module, batch)
        forward_over = time.perf_counter()
        step["children"] = _children()
        step["issued"] = len(flight_recorder_entries())
        # The first thing that a backward does.
        value.register_hook(lambda grad: step.update(gap_s=time.perf_counter() - forward_over))
        return value

    def note(parameter):
        """The first layer's weight is the last parameter to get its gradient."""
        step["issued"] = len(flight_recorder_entries()) - step["issued"]
        print(json.dumps(step), file=file, flush=True)

    workload.model[0].weight.register_post_accumulate_grad_hook(note)
    return replace(workload, loss=loss)


def _children():
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
