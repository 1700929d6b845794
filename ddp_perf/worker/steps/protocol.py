"""The interface of steps to the timed loop: training iterations, or calls of a collective."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec
import torch
from torch import nn

from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import ScriptFacts, Structure, Unit
from ddp_perf.core.strategy import Strategy
from ddp_perf.worker.heartbeat import Phase
from ddp_perf.worker.steps.plan import StepPlan


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about steps beside their time; the fields are those of ``RankResult``."""

    digest: int | None = None
    structure: Structure | None = None
    probe: RankProbe | None = None
    ddp_logging: dict[str, int | float | str] = {}
    flops: int | None = None
    flops_by_format: dict[str, int] = {}
    losses: dict[str, float | None] = {}
    loss_unit: float | None = None
    one_batch: bool = True
    script: ScriptFacts | None = None


class Steps(Protocol):
    """The steps of a case on one rank. All ranks run equally many.

    In each step the rank beats BEATS_PER_STEP times.
    """

    @property
    def collects_garbage(self) -> bool:
        """True if garbage is collected in timed steps; otherwise it is before and after them."""
        ...

    @property
    def unit(self) -> Unit:
        """The unit of throughput."""
        ...

    def beat(self) -> None:
        """Report to the supervisor that this rank makes progress."""
        ...

    def enter(self, phase: Phase) -> None:
        """Report to the supervisor that a phase begins."""
        ...


class Training(Steps, Protocol):
    """Steps that train a model, as the examination after the timed steps needs them."""

    @property
    def module(self) -> nn.Module:
        """The trained module, as its strategy wrapped it."""
        ...

    @property
    def strategy(self) -> Strategy:
        """The strategy by which the ranks train together."""
        ...

    def observe(
        self,
        on_phase: Callable[[str], None],
        on_loss: Callable[[torch.Tensor], None] | None = None,
    ) -> AbstractContextManager[None]:
        """Call ``on_phase`` at the end of each phase of the steps inside the ``with`` block.

        Its argument is the phase: "optimizer" (zeroed gradients count as it, too), "data",
        "forward" or "backward". ``on_loss`` gets the loss of each micro-step before its backward.
        """
        ...

    def settle(self, steps: int) -> StepPlan[None]:
        """Go on until at least ``steps`` are done in all and the next one is a full step."""
        ...

    def unsynchronised(self) -> AbstractContextManager[None]:
        """Let each rank use its own gradients in the steps inside the ``with`` block.

        The parameters differ by rank from then on. Only DDP can do it.
        """
        ...
