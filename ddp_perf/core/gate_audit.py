"""An audit of the gate: launches that a hidden size slowed, and what the gate called them."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.verdict import Outcome

Stage = Literal["sessions", "pairs"]  # stored sessions, or pairs of launches beside them


class GateAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The audit at the end of one session. It is no session, and its verdict none of the night."""

    date: str  # ISO 8601, UTC
    suite: str
    case_id: str
    tier: Tier
    accelerator: str  # the key that names its baseline file
    host: str
    commit: str | None  # of the audited code
    torch: str
    seed: int  # draws the case and the size
    size: float  # 0.05: the step was slowed by 5 %; 0: it was not slowed
    tolerance: float  # of the step time: less is not meant to be red
    outcome: Outcome  # the worst of the case's metrics
    ratio: float | None  # of the step time that was found
    interval: tuple[float, float] | None  # of the ratio, 99 % or as the pairs have it
    stage: Stage  # the one that decided
    seconds: float  # of the whole audit

    @property
    def is_found(self) -> bool:
        """True if the gate called it slower."""
        return self.outcome is Outcome.REGRESSION
