"""What all ranks must decide alike, or some would wait for others for ever."""

from __future__ import annotations

import torch
import torch.distributed as dist


def all_agree(yes: bool, device: torch.device, *, key: int = 0) -> bool:
    """Whether every rank says yes, and has the same key (of 62 bits at most). Collective."""
    said = torch.tensor([int(yes), key, -key], dtype=torch.int64, device=device)
    dist.all_reduce(said, dist.ReduceOp.MIN)
    all_say_yes, least, most = said.tolist()
    return bool(all_say_yes) and least == -most


_SPARE = 0.1  # of the device's memory: what an allocator cannot hand out in one piece


def has_room(wanted: int, device: torch.device) -> bool:
    """Whether so many bytes can be had without taking what training needs. A CPU's can."""
    if device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return wanted + _SPARE * total < free + cached


def allocator_retries(device: torch.device) -> int:
    """How often so far the memory was full, and the allocator gave its cache back to find some."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats(device)["num_alloc_retries"])
