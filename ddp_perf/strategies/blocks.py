"""Checkpointing and compiling the parts of a model, before a strategy wraps the whole.

Only the ``forward`` of a module is replaced, so names of parameters, types and FSDP's hooks are
kept. (``Module.compile`` compiles nothing if the module's class is torch's own, such as
``nn.Sequential``: dynamo skips its ``_call_impl``.)
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
    """Return the modules to compile or shard: the whole model, or its blocks with FSDP.

    Raises ConfigError if FSDP wraps blocks and the workload names none.
    """
    if case.fsdp is None or case.fsdp.wrap == "model":
        return [parts.model]
    return _blocks(parts, "fsdp.wrap: block")


def checkpoint_blocks(parts: Parts) -> None:
    """Keep only the input of each block, and compute its activations again in the backward.

    Raises ConfigError if the workload names no blocks.
    """
    for block in _blocks(parts, "activation_checkpointing"):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def compile_units(case: Case, parts: Parts) -> None:
    """Compile each unit. DDP still overlaps: torch splits the compiled graph at its buckets."""
    for unit in units(case, parts):
        unit.forward = torch.compile(unit.forward)


def _blocks(parts: Parts, option: str) -> Sequence[nn.Module]:
    if not parts.blocks:
        raise ConfigError(f"{option}: the workload names no blocks; give it Workload.blocks")
    return parts.blocks
