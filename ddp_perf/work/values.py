"""The values of the work gate: what changed in a step, where, and the verdict on it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import Phase, Site, StepWork

ChangeKind = Literal[
    "operation", "host_read", "collective", "memory", "calls", "autograd", "compilation", "model"
]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A site with how many more (fewer if negative) of the changed thing are there."""

    site: Site
    count: int


class WorkChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two counted steps.

    ``before`` and ``after`` are its number; ``bytes`` and ``flops`` are how many more it moves and
    computes. Each is negative for less.
    """

    kind: ChangeKind
    what: str  # "aten.clone (float32)", "peak memory", "all_reduce of 4,096 bytes (float32)"
    # Of the operations or collectives that are more or fewer; empty: this is not about their number
    name: str = ""  # "aten.clone", "all_reduce"
    dtypes: tuple[str, ...] = ()  # two, before and after, if it is their dtype that changed
    group: int | None = None  # ranks of a collective's group; None: all ranks
    unit: str = ""  # of before and after: "" for a number, "bytes"
    phase: Phase | None = None
    moved_from: Phase | None = None  # the same work was in this phase before
    before: int
    after: int
    bytes: int = 0
    flops: int = 0
    places: tuple[Place, ...] = ()  # where it changed most comes first
    detail: str = ""  # the reason of a graph break


class WorkVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on the work of a case.

    ``options`` are the changed options of the suite ("ddp.bucket_cap_mb: 25 → 5"), with their line
    in its file where it is known. ``lines`` are those that were edited and do more than before.
    """

    outcome: Outcome
    reason: str  # one sentence, without a remedy
    changes: tuple[WorkChange, ...] = ()  # what costs most comes first
    options: tuple[str, ...] = ()
    lines: tuple[Site, ...] = ()  # what costs most comes first


class CountedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case with the counts of its step, or why they could not be made."""

    case: Case
    work: StepWork | None = None  # of rank 0
    stored: StepWork | None = None  # what it is compared with; None: nothing is stored
    failure: str | None = None
    verdict: WorkVerdict | None = None
    saved: str | None = None  # the file that has the counts from now on; None: they were not stored
