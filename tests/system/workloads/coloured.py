"""A workload that prints $COLOUR, and may send a signal to its server in a step."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from ddp_perf.workloads import mlp


def build(context, *, sent=None):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    print(f"colour: {os.environ.get('COLOUR')}", flush=True)
    print(f"path: {os.environ['PYTHONPATH']}", flush=True)
    step = 0

    def loss(module, batch):
        nonlocal step
        step += 1
        if sent is not None and step == 4:
            os.kill(os.getppid(), signal.Signals[sent])
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
