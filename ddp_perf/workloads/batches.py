"""Batches of samples: one batch for all steps, or the batches of a data loader."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate

from ddp_perf.system.host.parent_death import die_with_parent
from ddp_perf.workloads.workload import Batch, BuildContext

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
