"""A workload that fails in one rank, in one step, in the requested way."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.workloads import mlp

_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 1 << 14, 1 << 18  # of the kernel
SMALL_GROUP = "/sys/fs/cgroup/memory/ddp-perf-faulty"  # which the test makes


def build(context, *, fault, at_step=8, fault_rank=1, noted=None):
    workload = mlp.build(context, input_dim=16, hidden_dim=16, output_dim=4, num_layers=2)
    step = 0

    def loss(module, batch):
        nonlocal step
        step += 1
        if step == at_step and context.rank == fault_rank:
            print(f"about to {fault}", flush=True)
            strike(fault, module, noted)
        return workload.loss(module, batch)

    if fault == "wide-model" and context.rank == fault_rank:
        strike(fault, workload.model, noted)
        workload = replace(workload, model=torch.nn.Linear(16, 5))
    if fault == "out-of-memory-uncompiled":
        workload = replace(workload, model=_OnlyCompiled(workload.model))
    return replace(workload, loss=loss)


def strike(fault, module, noted):
    """Do it, and before that write the time into the file ``noted``, if it is given."""
    if noted is not None:
        Path(noted).write_text(str(time.monotonic()), encoding="utf-8")
    _FAULTS[fault](module)


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
    """Share more than fits into a small /dev/shm, which is there for this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = _MS_REC | _MS_PRIVATE
    for mounted in (
        libc.unshare(_CLONE_NEWNS),
        libc.mount(b"none", b"/", None, private, None),
        libc.mount(b"none", b"/dev/shm", b"tmpfs", 0, b"size=64k"),
    ):
        if mounted != 0:
            raise OSError(ctypes.get_errno(), "no /dev/shm of this process's own")
    torch.zeros(2**22).share_memory_()
    raise AssertionError("the small /dev/shm is large")


def _not_a_number(module):
    with torch.no_grad():
        next(module.parameters()).fill_(float("nan"))


def _return_much(module):
    """Let the facts of this rank have 100 MB."""
    module._get_ddp_logging_data = lambda: {"note": "x" * 10**8}


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
    "wide-model": lambda module: None,
    "other-shape": lambda module: dist.all_reduce(torch.ones(7)),
    "nan": _not_a_number,
    "large-result": _return_much,
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
