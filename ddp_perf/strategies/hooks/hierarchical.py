"""Hierarchical all-reduce: the slow link between groups carries 1/size of the bytes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn import functional

from ddp_perf.core.strategy import HierarchicalHook
from ddp_perf.strategies.hooks.groups import group_across, group_within
from ddp_perf.strategies.hooks.hook import Hook, beside_backward
from ddp_perf.torch_compat import all_gather, reduce_scatter


class Hierarchical(Hook):
    """Reduce-scatter within a group, all-reduce between groups, all-gather within.

    Exact but for the order of the sum. A bucket of n values, padded to a multiple of the
    group's size: n values go in, n/size between the groups, and n come out.
    """

    def __init__(self, options: HierarchicalHook, device: torch.device) -> None:
        self._size = options.group_size
        self._within = group_within(options.group_size)
        self._across = group_across(options.group_size)
        self._start = beside_backward(device, self._mean)

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._start(bucket)

    def _mean(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        padded = functional.pad(buffer, (0, -buffer.numel() % self._size))
        shard = padded.new_empty(padded.numel() // self._size)
        reduce_scatter(shard, padded, self._within)
        dist.all_reduce(shard, group=self._across)
        shard /= dist.get_world_size()
        all_gather(padded, shard, self._within)
        return buffer.copy_(padded[: buffer.numel()])
