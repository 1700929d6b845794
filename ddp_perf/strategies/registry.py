"""The strategies by their names."""

from __future__ import annotations

import torch

from ddp_perf.core.case import Case
from ddp_perf.strategies.allocation import fill_model
from ddp_perf.strategies.blocks import checkpoint_blocks, compile_units
from ddp_perf.strategies.ddp import Ddp
from ddp_perf.strategies.fsdp import Fsdp
from ddp_perf.strategies.strategy import Parts, Strategy

_STRATEGIES: dict[str, type[Strategy]] = {"none": Strategy, "ddp": Ddp, "fsdp": Fsdp}


def apply_strategy(case: Case, parts: Parts, device: torch.device) -> Strategy:
    """Apply the case's strategy to the model, which is changed in place, and return it.

    Raises ConfigError if the case needs blocks and the workload names none, or if a model on the
    meta device cannot be filled.
    """
    if parts.fill is not None and case.strategy != "fsdp":  # which shards it before
        fill_model(parts.model, parts.fill, device, kept_on=device)
    if case.activation_checkpointing:
        checkpoint_blocks(parts)
    if case.compile:
        compile_units(case, parts)
    return _STRATEGIES[case.strategy](case, parts, device)
