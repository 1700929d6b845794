"""The interface of a workload, its batches, and the registry of the package's own workloads."""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from ddp_perf.core.case import Scalar
from ddp_perf.core.launch import Unit
from ddp_perf.core.subject import MODELS, DataOptions
from ddp_perf.errors import ConfigError
from ddp_perf.system.host.termination import die_with_parent

# The interface of a workload. A user's ``module:function`` builds one, too.


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

# Batches of samples: one batch for all steps, or the batches of a data loader.


_SHUFFLE_SEED = 0


class Synthetic(Dataset[Batch]):
    """A dataset of ``length`` random samples. A sample depends on its index only.

    ``make`` gets a generator that is seeded by the index.
    """

    def __init__(self, length: int, make: Callable[[torch.Generator], Batch]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        return self._make(torch.Generator().manual_seed(index))


def batches(dataset: Dataset[Batch], context: BuildContext) -> Batch | Iterator[Batch]:
    """Return the value of ``Workload.batch`` for a map-style dataset.

    It is one batch of this rank's own samples on the device. If the case measures data loading, it
    is the endless iterator of a DataLoader's batches, epoch after epoch.
    """
    if context.data.num_workers is not None:
        return _loaded(dataset, context, context.data.num_workers)
    first = context.rank * context.batch_size
    samples = [dataset[first + i] for i in range(context.batch_size)]
    return _on_device(default_collate(samples), context.device)


def _loaded(dataset: Dataset[Batch], context: BuildContext, num_workers: int) -> Iterator[Batch]:
    """Yield the batches of this rank's equal share of each epoch, shuffled anew in each epoch.

    A last batch that is not full is dropped, because all steps must be equal to be compared.
    """
    sampler: DistributedSampler[Batch] = DistributedSampler(
        dataset, context.world_size, context.rank, shuffle=True, seed=_SHUFFLE_SEED
    )
    rank = os.getpid()
    loader = DataLoader(
        dataset,
        context.batch_size,
        sampler=sampler,
        num_workers=num_workers,
        drop_last=True,
        pin_memory=context.device.type == "cuda",
        persistent_workers=num_workers > 0,
        worker_init_fn=lambda worker: die_with_parent(rank),
        # Any other method would import torch again in each worker of each launch.
        multiprocessing_context="fork" if num_workers else None,
    )
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for batch in loader:
            yield _on_device(batch, context.device)


def _on_device(batch: list[torch.Tensor], device: torch.device) -> Batch:
    return tuple(tensor.to(device, non_blocking=True) for tensor in batch)


# The builders of workloads by name. A module is imported only by the case that uses it.


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
