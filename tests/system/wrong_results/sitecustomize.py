"""Collectives with a wrong result on rank 1, at one place in the last quarter.

The forkserver imports this module from PYTHONPATH.
"""

from __future__ import annotations

import torch.distributed as dist

from ddp_perf import torch_compat


def _spoilt(call, at):
    def spoilt(*args, **kwargs):
        call(*args, **kwargs)
        result = args[at]
        if dist.get_rank() == 1:
            result[-result.numel() // 4] += 1

    return spoilt


dist.all_reduce = _spoilt(dist.all_reduce, 0)
dist.broadcast = _spoilt(dist.broadcast, 0)
torch_compat.all_gather = _spoilt(torch_compat.all_gather, 0)
torch_compat.reduce_scatter = _spoilt(torch_compat.reduce_scatter, 0)
