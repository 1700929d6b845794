"""The batches: slices of a table that is made once."""

import itertools
from collections.abc import Iterator

import torch

from ddp_perf.workloads.workload import Batch, BuildContext

from .model import CLASSES, WIDTH

ROWS = 8192


def batches(context: BuildContext) -> Iterator[Batch]:
    """Yield the batches of a rank, which are the same in every launch."""
    generator = torch.Generator().manual_seed(context.rank)
    table = torch.randn(ROWS, WIDTH, generator=generator)
    classes = torch.randint(CLASSES, (ROWS,), generator=generator)
    for step in itertools.count():
        first = step * context.batch_size % ROWS
        features = table[first : first + context.batch_size]
        labels = classes[first : first + context.batch_size]
        yield features, labels
