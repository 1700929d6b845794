"""The interface of a workload. A user's ``module:function`` builds one, too."""

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
    """The properties of the rank that a builder builds for."""

    device: torch.device
    batch_size: int  # samples of this rank
    rank: int
    world_size: int
    data: DataOptions = field(default_factory=DataOptions)  # used by `workloads.batches`


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model with its batches, loss and optimizer.

    ``loss`` gets the module, wrapped by the strategy, and a batch. It returns the scalar to call
    ``backward`` on. Parameters must have equal initial values on all ranks: all ranks have the
    same random seed when the builder is called.

    A model that no rank has room for is built on the meta device, without buffers, and has
    ``fill``: it gets the name of each parameter and an empty tensor of its whole shape, which it
    fills in place from the default generator. FSDP calls it after it sharded the model.
    """

    model: nn.Module
    batch: Batch | Iterator[Batch]  # one batch for all steps, or an iterator of one for each
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    fill: Callable[[str, torch.Tensor], None] | None = None  # of a model on the meta device
    blocks: Sequence[nn.Module] = ()  # the model's repeated parts, which FSDP shards one by one
    unit: Unit = field(default_factory=Unit)  # what throughput counts


Builder = Callable[..., Workload]  # (context: BuildContext, **model arguments) -> Workload
