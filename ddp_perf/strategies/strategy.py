"""What a strategy is to the training iteration; by itself the plain module on one rank."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from ddp_perf.core.case import Case


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A model, on the rank's device, and its repeated parts; none where nobody named any."""

    model: nn.Module
    blocks: Sequence[nn.Module]


class Strategy:
    """A module as a strategy trains it. ``none`` has nothing to synchronise."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        self.module = parts.model

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of a micro-step; the last one of a step synchronises."""
        return nullcontext()

    def after_step(self) -> None:
        """After the optimizer's step."""

    def is_full_step(self, step: int) -> bool:
        """Whether a step, counted from 0, does all that this strategy ever does in a step."""
        return True
