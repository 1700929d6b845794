"""The context of a rank: the values that all code inside one rank shares."""

from __future__ import annotations

import msgspec
import torch

from ddp_perf.core.launch import Placement
from ddp_perf.worker.examination import Examination
from ddp_perf.worker.heartbeat import Heartbeats


class RankContext(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a launch, placed on its device."""

    rank: int
    device: torch.device
    placement: Placement
    heartbeats: Heartbeats  # shared with the supervisor
    examination: Examination = msgspec.field(default_factory=Examination)
