"""A workload that fails in one rank, in one step, in the requested way."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.workloads import mlp


def build(context, *, fault, at_step=8, fault_rank=1):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    step = 0

    def loss(module, batch):
        nonlocal step
        step += 1
        if step == at_step and context.rank == fault_rank:
            print(f"about to {fault}", flush=True)
            _FAULTS[fault](module)
        return workload.loss(module, batch)

    if fault == "out-of-memory-uncompiled":
        workload = replace(workload, model=_OnlyCompiled(workload.model))
    return replace(workload, loss=loss)


def without_ddp_logging(context):
    del DistributedDataParallel._get_ddp_logging_data
    return build(context, fault="nothing")


class _OnlyCompiled(torch.nn.Module):
    """A model that fits into the memory only if it is compiled."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        if not torch.compiler.is_compiling():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return self.model(inputs)


def _raise(module):
    raise ValueError("the data are broken")


def _raise_from(module):
    try:
        {}["the key"]
    except KeyError as error:
        raise ValueError("the data are broken") from error


def _tamper(module):
    with torch.no_grad():
        next(module.parameters()).add_(1)


_FAULTS = {
    "nothing": lambda module: None,
    "out-of-memory-uncompiled": lambda module: None,
    "raise": _raise,
    "raise-from": _raise_from,
    "exit": lambda module: sys.exit(3),
    "os-exit": lambda module: os._exit(3),
    "kill": lambda module: os.kill(os.getpid(), signal.SIGKILL),
    "kill-server": lambda module: os.kill(os.getppid(), signal.SIGKILL),
    "stop": lambda module: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": lambda module: threading.Event().wait(),
    "skip-collective": lambda module: dist.barrier(),
    "tamper": _tamper,
}
