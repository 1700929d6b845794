"""The first steps of the process of a rank, before it imports torch or uses it."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import os
import signal
from collections.abc import Iterable

from ddp_perf.system.host.termination import die_with_parent
from ddp_perf.worker.report import STACK_SIGNAL, RankFiles

# The imports of a rank that a server makes once for all ranks, and any other rank for itself.


# Of NVIDIA, of its boards for robots, WSL and ROCm.
_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


def preload(workloads: Iterable[str]) -> None:
    """Import torch and its distributed package, the registry of workloads, and these workloads.

    Each optimizer imports torch's compiler at its first step: this takes 0.4 s in a rank. Where
    there may be a GPU, ranks do it for themselves: the compiler asks for it, and a server must not.
    """
    importlib.import_module("torch")
    from ddp_perf.workloads.workload import find_builder

    if not may_have_gpu():
        importlib.import_module("torch._dynamo")
    for workload in workloads:
        find_builder(workload)


def may_have_gpu() -> bool:
    """Return whether torch is built for GPUs and there is a driver, without asking it."""
    import torch

    built_for_gpus: bool = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    return built_for_gpus and any(os.path.exists(path) for path in _DRIVERS)


def freeze() -> None:
    """Leave all that was imported out of later garbage collections: saves 150 ms in a rank."""
    gc.collect()
    gc.freeze()


# The first steps of the process of a rank, before it imports torch or uses it.


def set_up_rank(files: RankFiles, parent: int) -> None:
    """Let this process end with ``parent`` and at SIGTERM, and write output and stacks to files."""
    die_with_parent(parent)
    for number in (signal.SIGTERM, signal.SIGHUP):  # which are for the server
        signal.signal(number, signal.SIG_DFL)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # so that all that this rank starts can be killed with it
    _redirect_output(files)
    stacks = os.open(files.stacks, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)


def _redirect_output(files: RankFiles) -> None:
    """Replace the output descriptors, to which C++ and child processes write, too."""
    output = os.open(files.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
