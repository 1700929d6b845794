"""The module as a strategy trains it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.case import Case, DdpOptions
from ddp_perf.torch_compat import broadcast_buffers_argument


def wrap(case: Case, module: nn.Module, device: torch.device) -> nn.Module:
    """``none``: the module itself. ``ddp``: wrapped, with the options of the case."""
    if case.ddp is None:
        return module
    return _ddp(case.ddp, module, device)


def _ddp(options: DdpOptions, module: nn.Module, device: torch.device) -> nn.Module:
    arguments: dict[str, Any] = broadcast_buffers_argument(options.broadcast_buffers)
    if options.bucket_cap_mb is not None:
        arguments["bucket_cap_mb"] = options.bucket_cap_mb
    return DistributedDataParallel(
        module,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        find_unused_parameters=options.find_unused_parameters,
        **arguments,
    )
