"""What a case repeats, as the timed loop sees it: training iterations, or calls of a collective."""

from __future__ import annotations

from typing import Protocol

import msgspec

from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.launch import Structure, Unit
from ddp_perf.worker.heartbeat import Phase


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What steps did, beside the time they took; fields as in ``RankResult``."""

    digest: int | None = None
    structure: Structure | None = None
    probe: RankProbe | None = None
    ddp_logging: dict[str, int | float | str] = {}
    flops: int | None = None
    unit: Unit


class Steps(Protocol):
    """Built by every rank of a case, and run in step with the others'."""

    def step(self) -> None:
        """One step; two beats."""
        ...

    def beat(self) -> None:
        """Tell the supervisor that this rank gets on."""
        ...

    def enter(self, phase: Phase) -> None:
        """Tell the supervisor what comes next."""
        ...

    def facts(self) -> StepFacts:
        """Count, or check, what a step does, after the timed ones; may run more of them.

        Raises DdpPerfError where they went wrong.
        """
        ...
