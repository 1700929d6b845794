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
