"""Why a case takes longer than its baseline: causes with their share and their evidence."""

from __future__ import annotations

from typing import Literal

import msgspec

CauseKind = Literal[
    "compute",
    "communication",
    "more communication",
    "smaller buckets",
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
    error_s: float | None  # standard error of the change; None: nothing tells it

    @property
    def change_s(self) -> float:
        return self.after_s - self.before_s

    @property
    def is_certain(self) -> bool:
        return self.is_beyond_error(self.change_s)

    def is_beyond_error(self, change_s: float) -> bool:
        """Whether so large a change is beyond two standard errors."""
        return self.error_s is not None and abs(change_s) > 2 * self.error_s


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
    launches: int  # of this session that it rests on, those run only to explain among them
