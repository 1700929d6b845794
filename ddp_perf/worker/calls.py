"""Collectives by name, each on a whole tensor and one rank's share of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from ddp_perf.torch_compat import all_gather, reduce_scatter

ROOT = 0  # of a broadcast

CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "all_reduce": lambda whole, share: dist.all_reduce(whole),
    "broadcast": lambda whole, share: dist.broadcast(whole, ROOT),
    "all_gather": lambda whole, share: all_gather(whole, share, None),
    "reduce_scatter": lambda whole, share: reduce_scatter(share, whole, None),
}
