"""What is done to the parts of a model, before a strategy wraps the whole.

A ``forward`` is replaced on its module, and the module is left as it is: names of parameters,
types and the hooks of FSDP stay. (``Module.compile`` compiles nothing where the module's
class is torch's own, an ``nn.Sequential`` for one: dynamo skips its ``_call_impl``.)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ddp_perf.core.case import Case
from ddp_perf.errors import ConfigError
from ddp_perf.strategies.strategy import Parts


def units(case: Case, parts: Parts) -> Sequence[nn.Module]:
    """What is handled at a time: the whole model, but FSDP gathers block by block."""
    if case.fsdp is None or case.fsdp.wrap == "model":
        return [parts.model]
    return _blocks(parts, "fsdp.wrap: block")


def checkpoint_blocks(parts: Parts) -> None:
    """Keep only the input of each block, and compute the rest again in the backward."""
    for block in _blocks(parts, "activation_checkpointing"):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def compile_units(case: Case, parts: Parts) -> None:
    """Compile each unit. DDP's buckets still go out during the backward: torch splits there."""
    for unit in units(case, parts):
        unit.forward = torch.compile(unit.forward)


def _blocks(parts: Parts, option: str) -> Sequence[nn.Module]:
    if not parts.blocks:
        raise ConfigError(f"{option}: the workload names no blocks; give it Workload.blocks")
    return parts.blocks
