"""A workload that records, in every step of every rank, the things that injections change."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

from ddp_perf.torch_compat import flight_recorder_entries
from ddp_perf.worker.timing import clock
from ddp_perf.workloads import mlp


def build(context, *, notes, width=32, killed_at=None):
    """Return a workload that writes one line of JSON per step to the file ``notes``.RANK.

    A line contains the delay of the backward, the number of collectives in it before the last
    gradient, and the child processes.
    """
    sizes = {"input_dim": width, "hidden_dim": width, "output_dim": width}
    workload = mlp.build(context, **sizes, num_layers=4)
    clock._WAITS = Path(notes, "none")  # a busy machine adds no steps, so digests compare
    file = Path(f"{notes}.{context.rank}")
    file.write_text("", encoding="utf-8")
    step = {"number": 0}

    def loss(module, batch):
        value = workload.loss(module, batch)
        step["number"] += 1
        step["children"] = _children()
        forward_over = time.perf_counter()
        value.register_hook(lambda grad: begin_backward(time.perf_counter() - forward_over))
        return value

    def begin_backward(late_s):
        step["late_s"] = late_s
        step["issued"] = len(flight_recorder_entries())

    def end_backward(parameter):
        step["issued"] = len(flight_recorder_entries()) - step["issued"]
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(step) + "\n")
        if step["number"] == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    # The first layer's weight is the last parameter to get its gradient.
    next(workload.model.parameters()).register_post_accumulate_grad_hook(end_backward)
    return replace(workload, loss=loss)


def _children():
    return [
        int(pid)
        for pid in Path(f"/proc/self/task/{os.getpid()}/children")
        .read_text(encoding="utf-8")
        .split()
    ]
