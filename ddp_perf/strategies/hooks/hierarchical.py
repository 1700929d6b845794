"""Hierarchical all-reduce: 1/size of the bytes crosses the slow link between groups."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed import GradBucket
from torch.futures import Future
from torch.nn import functional

from ddp_perf.core.strategy import HierarchicalHook
from ddp_perf.strategies.communication_hooks import Hook, beside_backward, from_step
from ddp_perf.strategies.hooks.compression import in_format
from ddp_perf.strategies.hooks.groups import group_across, group_within
from ddp_perf.strategies.hooks.topk import LargestValues
from ddp_perf.torch_compat import all_gather, reduce_scatter


class Hierarchical(Hook):
    """A reduce-scatter within groups, an all-reduce between them, and an all-gather within them.

    The result is exact except for the order of the sum. A bucket is padded to n values, a multiple
    of the group's size: n values are reduced within, n/size between groups, n gathered within.

    With a ratio, each group sends only the largest of its n/size sums, as Top-K does.
    """

    def __init__(self, options: HierarchicalHook, device: torch.device) -> None:
        assert isinstance(options.group_size, int)  # `build_hook` has replaced "node"
        self._size = options.group_size
        self._within = group_within(self._size)
        self._across = group_across(self._size)
        self._largest: LargestValues | None = None
        if options.ratio is not None:
            self._largest = LargestValues(options.ratio, self._across)
        start = from_step(options.start_step, beside_backward(device, self._mean))
        self._start = in_format(options.wire, start)

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._start(bucket)

    def _mean(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        padded = functional.pad(buffer, (0, -buffer.numel() % self._size))
        shard = padded.new_empty(padded.numel() // self._size)
        reduce_scatter(shard, padded, self._within)
        if self._largest is None:
            dist.all_reduce(shard, group=self._across)
        else:
            self._largest.sum_(shard, index)
        shard /= dist.get_world_size()
        all_gather(padded, shard, self._within)
        return buffer.copy_(padded[: buffer.numel()])
