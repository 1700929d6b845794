"""Top-K: each rank sends the largest values of a bucket, and keeps the others for later."""

from __future__ import annotations

import math

import torch
import torch.distributed as dist
from torch.distributed import GradBucket, ProcessGroup
from torch.futures import Future

from ddp_perf.core.strategy import TopKHook
from ddp_perf.strategies.communication_hooks import Hook, beside_backward, from_step
from ddp_perf.torch_compat import all_gather


class TopK(Hook):
    """The mean of the values that the ranks sent (Lin et al. 2017), with error feedback.

    Error feedback (Stich et al. 2018, arXiv:1809.07599) adds the values that were not sent to the
    next step's gradient. Of a bucket of n values, each rank sends k = ⌈ratio·n⌉ values and k
    indices of 4 bytes.
    """

    def __init__(self, options: TopKHook, device: torch.device) -> None:
        self._largest = LargestValues(options.ratio, dist.group.WORLD)
        self._start = from_step(options.start_step, beside_backward(device, self._mean))

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._start(bucket)

    def _mean(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        return self._largest.sum_(buffer, index).div_(dist.get_world_size())


class LargestValues:
    """The sum over a group of the largest values of each rank; the others wait for later steps."""

    def __init__(self, ratio: float, group: ProcessGroup | None) -> None:
        self._ratio = ratio
        self._group = group
        self._unsent: dict[int, torch.Tensor] = {}  # by the bucket's index

    def sum_(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        """Replace ``buffer``, of the bucket ``index``, by the sum. Collective."""
        unsent = self._unsent.setdefault(index, torch.zeros_like(buffer))
        unsent += buffer
        count = math.ceil(self._ratio * buffer.numel())
        indices = unsent.abs().topk(count, sorted=False).indices
        values = unsent[indices]
        unsent[indices] = 0
        buffer.zero_()
        # Every rank adds in the order of ranks, so that all get the same bits.
        for sent, places in zip(self._gather(values), self._gather(indices.int()), strict=True):
            buffer[places] += sent
        return buffer

    def _gather(self, own: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gather the values of all ranks of the group, in the order of ranks. Collective."""
        size = dist.get_world_size(self._group)
        gathered = own.new_empty(size * own.numel())
        all_gather(gathered, own, self._group)
        return gathered.chunk(size)
