"""The context of a single rank, in the test's own process."""

from __future__ import annotations

import torch

from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.report import Heartbeats
from tests.builders import make_placement

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


def make_context(device=CPU):
    """Return the context of rank 0 of 1 on ``device``."""
    return RankContext(rank=0, device=device, placement=make_placement(), heartbeats=Heartbeats(1))
