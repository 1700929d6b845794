"""The imports of a rank that a server makes once for all ranks, and any other rank for itself."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterable

# Of NVIDIA, of its boards for robots, WSL and ROCm.
_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


def preload(workloads: Iterable[str]) -> None:
    """Import torch and its distributed package, the registry of workloads, and these workloads.

    Each optimizer imports torch's compiler at its first step: this takes 0.4 s in a rank. Where
    there may be a GPU, ranks do it for themselves: the compiler asks for it, and a server must not.
    """
    importlib.import_module("torch")
    from ddp_perf.workloads.registry import find_builder

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
