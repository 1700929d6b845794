"""What a workload is to the harness. A user's ``module:function`` builds one too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from ddp_perf.core.data import DataOptions
from ddp_perf.core.launch import Unit

Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """What a builder needs to know of the rank that it builds for."""

    device: torch.device
    batch_size: int  # samples of this rank
    rank: int
    world_size: int
    data: DataOptions = field(default_factory=DataOptions)  # heeded by `workloads.batches`


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model and what one step of it is.

    ``loss`` gets the module as the strategy wrapped it and a batch, and returns the
    scalar to call ``backward`` on. Parameters must be initialised alike on every rank
    (the harness seeds all ranks alike before it calls the builder).
    """

    model: nn.Module
    batch: Batch | Iterator[Batch]  # the same for every step, or the next one each time
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    blocks: Sequence[nn.Module] = ()  # the model's repeated parts, the units that FSDP shards
    unit: Unit = field(default_factory=Unit)  # what throughput counts


Builder = Callable[..., Workload]  # (context: BuildContext, **model arguments) -> Workload
