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

_ERRORS = 2.64  # standard errors: 5 % shared by six groups, both sides (Bonferroni)


class TermChange(msgspec.Struct, frozen=True, kw_only=True):
    """One term of the step, or a group of them, against the baseline. Seconds."""

    name: str
    before_s: float
    after_s: float
    error_s: float  # standard error of the change

    @property
    def change_s(self) -> float:
        return self.after_s - self.before_s

    @property
    def is_certain(self) -> bool:
        return self.is_beyond_error(self.change_s)

    def is_beyond_error(self, change_s: float) -> bool:
        """Beyond what one in twenty cases shows by chance in any of its groups of terms."""
        return abs(change_s) > _ERRORS * self.error_s


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What made the step longer, or shorter, by how much, and what shows it."""

    kind: CauseKind
    change_s: float
    share: float  # of the step's change
    evidence: tuple[str, ...]
    rank: int | None = None  # of a straggler


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Of one case that got slower."""

    case_id: str
    step_change_s: float
    causes: tuple[Cause, ...]  # the largest first
    terms: tuple[TermChange, ...]
    launches: int  # of this session that it rests on
