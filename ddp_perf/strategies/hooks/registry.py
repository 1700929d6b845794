"""The communication hooks by the kind of their options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ddp_perf.core.strategy import AnyCommHook
from ddp_perf.strategies.hooks.compression import HalfPrecision, PowerSgd
from ddp_perf.strategies.hooks.hierarchical import Hierarchical
from ddp_perf.strategies.hooks.hook import Hook
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


def build_hook(options: AnyCommHook, device: torch.device) -> Hook:
    """Build a new hook. Collective: every rank of the process group builds it."""
    return _HOOKS[options.kind](options, device)
