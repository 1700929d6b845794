"""A workload that writes its pids in its first step, then stays in one state."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from ddp_perf.core.subject import DataOptions
from ddp_perf.workloads import mlp
from ddp_perf.workloads.workload import Synthetic, batches


def build(context, *, state, pids):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    has_written = False
    if state == "loading":
        loading = replace(context, data=DataOptions(num_workers=1))
        samples = Synthetic(1000, lambda random: (torch.zeros(16), torch.zeros(4)))
        workload = replace(workload, batch=batches(samples, loading))

    def loss(module, batch):
        nonlocal has_written
        if not has_written:
            has_written = True
            with open(pids, "w", encoding="utf-8") as pipe:
                children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(
                    encoding="utf-8"
                )
                pipe.write(f"{os.getpid()} {os.getppid()} {children}\n")
            if state == "sleeping":
                threading.Event().wait()
            elif state == "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif state == "in-a-collective" and context.rank == 0:
                dist.barrier()  # which rank 1 never joins
            elif state == "in-a-collective":
                threading.Event().wait()
        return workload.loss(module, batch)

    return replace(workload, loss=loss)
