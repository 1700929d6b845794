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
    "slow node",
    "data",
    "host",
    "host sync",
    "memory",
    "machine",
    "unexplained",
]


FigureUnit = Literal["s", "count"]

# The keys of files have the unit, because these contain terms only, which are seconds.
_KEYS = {"before": "before_s", "after": "after_s", "uncertainty": "uncertainty_s"}


class Delta(msgspec.Struct, frozen=True, kw_only=True, rename=_KEYS):
    """The change of one figure of a step, or of a group of terms, against the baseline."""

    name: str
    unit: FigureUnit = "s"
    before: float
    after: float
    # Chance alone causes at most this change, except in one of twenty cases for any group of terms.
    uncertainty: float

    @property
    def change(self) -> float:
        """The difference, after minus before."""
        return self.after - self.before

    @property
    def is_certain(self) -> bool:
        """True if the change is larger than its uncertainty."""
        return abs(self.change) > self.uncertainty


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
    terms: tuple[Delta, ...]
    launches: int  # launches of this session that it uses
