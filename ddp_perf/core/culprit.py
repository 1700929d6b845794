"""The culprit that a search after a red gate finds: a commit, a package or a variable."""

from __future__ import annotations

from typing import Literal

import msgspec


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, package or variable that made a case slower, as far as a search could tell."""

    kind: Literal["commit", "package", "variable"]
    name: str  # the hash of a commit; "torch 2.12 → 2.13"
    title: str = ""  # the subject of a commit
    author: str = ""
    probability: float
    ratio: float | None = None  # of the metric, with it ÷ without it; None: nothing was launched
    interval: tuple[float, float] | None = None  # 95 %
    launches: int
    seconds: float
    why: str  # what the search rests on, without a full stop
