"""Why a case takes longer than its baseline: causes with their share and their evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

CauseKind = Literal[
    "compute",
    "communication",
    "more communication",
    "smaller buckets",
    "other collectives",
    "lost overlap",
    "straggler",
    "data",
    "host",
    "host sync",
    "memory",
    "machine",
    "unexplained",
]


class TermChange(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the step, or a group of them, against the baseline. Seconds."""

    name: str
    before_s: float
    after_s: float
    # So much chance brings about: beyond it lies, in one of twenty cases, any group of terms.
    uncertainty_s: float = 0.0  # 0: of a results file from before it was kept

    @property
    def change_s(self) -> float:
        return self.after_s - self.before_s

    @property
    def is_certain(self) -> bool:
        return abs(self.change_s) > self.uncertainty_s


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What made the step longer, or shorter, by how much, and what shows it."""

    kind: CauseKind
    change_s: float
    share: float  # of the step's change
    evidence: tuple[str, ...]
    rank: int | None = None  # of a straggler
    likely: bool = False  # the largest of what changed, yet no more than chance might do


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Of one case that got slower."""

    case_id: str
    step_change_s: float
    causes: tuple[Cause, ...]  # the largest first
    terms: tuple[TermChange, ...]
    launches: int  # of this session that it rests on
