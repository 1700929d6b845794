"""The batches of a loader's workers are seen by no mode; those that the rank loads itself are."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from ddp_perf.worker.script.count import unrecorded_batches


class Count(TorchDispatchMode):
    """Counts the operations on tensors that are dispatched."""

    operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += func.namespace == "aten"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("workers", "seen"), [(0, True), (1, False)])
def test_only_batches_that_the_rank_loads_itself_are_seen(workers, seen):
    data = TensorDataset(torch.arange(6))
    with unrecorded_batches():
        loader = iter(DataLoader(data, batch_size=2, num_workers=workers))
        with Count() as count:
            batches = [batch.tolist() for (batch,) in loader]

    assert batches == [[0, 1], [2, 3], [4, 5]]
    assert (count.operations > 0) is seen
