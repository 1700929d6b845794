"""The communication hooks by the kind of their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from ddp_perf.core.case import Case
from ddp_perf.strategies.communication_hooks import Hook
from ddp_perf.strategies.hooks.compression import HalfPrecision, PowerSgd
from ddp_perf.strategies.hooks.hierarchical import Hierarchical
from ddp_perf.strategies.hooks.post_local_sgd import PostLocalSgd
from ddp_perf.strategies.hooks.topk import TopK

_HOOKS: dict[str, Callable[[Any, torch.device], Hook]] = {
    "fp16": HalfPrecision,
    "bf16": HalfPrecision,
    "powersgd": PowerSgd,
    "topk": TopK,
    "hierarchical": Hierarchical,
    "post_local_sgd": PostLocalSgd,
}


def build_hook(case: Case, device: torch.device) -> Hook | None:
    """Build the hook of the case, if it has one. Collective: all ranks of the group build it."""
    options = case.comm_hook
    if options is None:
        return None
    if case.group_size is not None:
        options = msgspec.structs.replace(options, group_size=case.group_size)  # "node" as a number
    return _HOOKS[options.kind](options, device)
