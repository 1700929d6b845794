"""Name of a workload → its builder. A module is imported only by the case that uses it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from ddp_perf.core.case import Scalar
from ddp_perf.core.models import MODELS
from ddp_perf.workloads.workload import BuildContext, Builder, Workload


def find_builder(workload: str) -> Builder:
    """The function that builds ``workload``: the suite's own name, or ``module:function``."""
    target = f"ddp_perf.workloads.{workload}:build" if workload in MODELS else workload
    module, function = target.split(":")
    builder: Builder = getattr(importlib.import_module(module), function)
    return builder


def build_workload(workload: str, context: BuildContext, model: Mapping[str, Scalar]) -> Workload:
    """The workload for one rank. Raises TypeError where a user's function returns another."""
    built = find_builder(workload)(context, **model)
    if not isinstance(built, Workload):
        raise TypeError(f"{workload} returned {type(built).__name__}, no Workload")
    return built
