"""The explanation of a slower case: causes, each with its share and its evidence."""

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
    """The change of a term of the step, or of a group of terms, since the baseline. Seconds."""

    name: str
    before_s: float
    after_s: float
    # Half width of the range of chance: in one of twenty cases any group of terms exceeds it.
    uncertainty_s: float = 0.0  # 0: unknown, in an older results file

    @property
    def change_s(self) -> float:
        return self.after_s - self.before_s

    @property
    def is_certain(self) -> bool:
        return abs(self.change_s) > self.uncertainty_s


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of a longer or shorter step, with its size and its evidence."""

    kind: CauseKind
    change_s: float
    share: float  # share of the step's change
    evidence: tuple[str, ...]
    rank: int | None = None  # the straggler
    likely: bool = False  # the largest change, but chance may explain it


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one case that became slower."""

    case_id: str
    step_change_s: float
    causes: tuple[Cause, ...]  # the largest first
    terms: tuple[TermChange, ...]
    launches: int  # launches of this session that it uses
