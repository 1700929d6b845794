"""The conditions of the probe that all ranks must decide equally, or some would hang."""

from __future__ import annotations

import torch
import torch.distributed as dist

NO_STRUCTURE = "a rank has no structure"  # the reason for which no rank has a probe


def all_agree(yes: bool, device: torch.device, *, key: int = 0) -> bool:
    """Return whether ``yes`` is true and ``key`` is equal on all ranks. Collective.

    The key has 62 bits at most.
    """
    votes = torch.tensor([int(yes), key, -key], dtype=torch.int64, device=device)
    dist.all_reduce(votes, dist.ReduceOp.MIN)
    all_yes, least_key, negative_largest_key = votes.tolist()
    return bool(all_yes) and least_key == -negative_largest_key


_SPARE = 0.1  # of the device's memory: fragmentation may make it unusable


def has_room(wanted: int, device: torch.device) -> bool:
    """Return whether the device has ``wanted`` bytes beside training. A CPU always has them."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return wanted + _SPARE * total < free + cached


def allocator_retries(device: torch.device) -> int:
    """Return how often so far the allocator had to free its cache because memory was full."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats(device)["num_alloc_retries"])
