"""The builders of workloads by name. A module is imported only by the case that uses it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from ddp_perf.core.case import Scalar
from ddp_perf.core.subject import MODELS
from ddp_perf.errors import ConfigError
from ddp_perf.workloads.workload import BuildContext, Builder, Workload


def find_builder(workload: str) -> Builder:
    """Return the function that builds ``workload``.

    It is the name of one of the suite's own workloads, or ``module:function``.
    """
    target = f"ddp_perf.workloads.{workload}:build" if workload in MODELS else workload
    module, function = target.split(":")
    builder: Builder = getattr(importlib.import_module(module), function)
    return builder


def build_workload(workload: str, context: BuildContext, model: Mapping[str, Scalar]) -> Workload:
    """Build the workload of one rank.

    Raises ConfigError if a user's function returns anything other than a Workload.
    """
    built = find_builder(workload)(context, **model)
    if not isinstance(built, Workload):
        raise ConfigError(
            f"workload: {workload} returned {type(built).__name__}, not a Workload; return one of"
            " ddp_perf.workloads.workload"
        )
    return built
