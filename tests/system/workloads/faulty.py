"""A workload that fails in one rank, in one step, in the requested way."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.workloads import mlp

SMALL_GROUP = "/sys/fs/cgroup/memory/ddp-perf-faulty"  # which the test makes


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


def _out_of_descriptors(module):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    opened = []
    while True:
        opened.append(os.open(os.devnull, os.O_RDONLY))


def _out_of_space(module):
    """Write more than fits: as on a full /dev/shm, but of this process alone."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))
    with open("/dev/shm/faulty", "wb") as file:
        os.unlink(file.name)
        file.write(bytes(2**21))


def _out_of_memory(module):
    """Take memory until the kernel ends this process, alone in a small group."""
    Path(SMALL_GROUP, "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
    taken = []
    while True:
        taken.append(b"x" * 2**24)


def _loop(module):
    while True:
        pass


def _flood(module):
    for _ in range(2**8):
        os.write(2, b"x" * 2**22)
    raise ValueError("the data are broken")


def _raise_at_length(module):
    raise ValueError("broken data: " + "x" * 10**7)


def _leave_a_daemon(module):
    subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
    )
    raise ValueError("the data are broken")


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
    "exit-0": lambda module: os._exit(0),
    "segfault": lambda module: os.kill(os.getpid(), signal.SIGSEGV),
    "loop": _loop,
    "loop-in-c": lambda module: ctypes.PyDLL(None).pause(),  # holds the GIL
    "out-of-descriptors": _out_of_descriptors,
    "out-of-space": _out_of_space,
    "out-of-memory": _out_of_memory,
    "flood": _flood,
    "long-error": _raise_at_length,
    "daemon": _leave_a_daemon,
}
