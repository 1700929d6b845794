"""The interface of steps to the timed loop: training iterations, or calls of a collective."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import Structure, Unit
from ddp_perf.worker.heartbeat import Phase


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about steps beside their time; the fields are those of ``RankResult``."""

    digest: int | None = None
    structure: Structure | None = None
    probe: RankProbe | None = None
    ddp_logging: dict[str, int | float | str] = {}
    flops: int | None = None
    losses: dict[str, float | None] = {}
    loss_unit: float | None = None
    one_batch: bool = True
    unit: Unit


class Steps(Protocol):
    """The steps of a case on one rank. All ranks build them and run equally many."""

    def step(self) -> None:
        """Run one step, and beat BEATS_PER_STEP times."""
        ...

    def beat(self) -> None:
        """Report to the supervisor that this rank makes progress."""
        ...

    def enter(self, phase: Phase) -> None:
        """Report to the supervisor that a phase begins."""
        ...
