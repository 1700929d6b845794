"""Name of a workload → its builder. A module is imported only by the case that uses it."""

from __future__ import annotations

import importlib

from ddp_perf.core.models import MODELS
from ddp_perf.workloads.workload import Builder


def find_builder(workload: str) -> Builder:
    """The function that builds ``workload``: the suite's own name, or ``module:function``."""
    target = f"ddp_perf.workloads.{workload}:build" if workload in MODELS else workload
    module, function = target.split(":")
    builder: Builder = getattr(importlib.import_module(module), function)
    return builder
