"""Name of a workload → its builder. A module is imported only by the case that uses it."""

from __future__ import annotations

import importlib

from ddp_perf.workloads.workload import Builder

_OWN = {"mlp": "ddp_perf.workloads.mlp:build"}


def find_builder(workload: str) -> Builder:
    """The function that builds ``workload``: the suite's own name, or ``module:function``."""
    module, function = _OWN.get(workload, workload).split(":")
    builder: Builder = getattr(importlib.import_module(module), function)
    return builder
