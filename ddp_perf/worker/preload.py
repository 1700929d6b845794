"""The imports of a rank that a server makes once for all ranks, and any other rank for itself."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterable


def preload(workloads: Iterable[str]) -> None:
    """Import torch and its distributed package, the registry of workloads, and these workloads.

    Each optimizer imports torch's compiler at its first step: this takes 0.4 s in a rank. A torch
    that is built for CUDA does it there: a server must ask for no device.
    """
    import torch

    from ddp_perf.workloads.registry import find_builder

    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        importlib.import_module("torch._dynamo")
    for workload in workloads:
        find_builder(workload)


def freeze() -> None:
    """Leave all that was imported out of later garbage collections: saves 150 ms in a rank."""
    gc.collect()
    gc.freeze()
