"""The interface of a strategy to the training iteration, and the strategy ``none``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from ddp_perf.core.case import Case

Fill = Callable[[str, torch.Tensor], None]  # fills a parameter by its name, in place


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A model on the rank's device and its repeated parts, which are empty if none are named.

    If it has ``fill`` it is on the meta device until it is allocated.
    """

    model: nn.Module
    blocks: Sequence[nn.Module]
    fill: Fill | None = None


class Strategy:
    """A strategy with its module. This base class is ``none``, which synchronises nothing."""

    def __init__(self, case: Case, parts: Parts, device: torch.device) -> None:
        self.module = parts.model

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Return the context of a micro-step's forward and backward; the last one synchronises."""
        return nullcontext()

    def after_step(self) -> None:
        """Run after the optimizer's step."""

    def is_full_step(self, step: int) -> bool:
        """Return whether a step, counted from 0, does all that any step of this strategy does."""
        return True
