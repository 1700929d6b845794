"""The second stage of a session: the code of a stored session ran beside today's."""

from __future__ import annotations

import msgspec

from ddp_perf.core.culprit import Culprit
from ddp_perf.core.work import Site


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of the second stage on one case. Its verdicts are in the suite's findings."""

    reference: str | None  # date of the stored session; None: no stored session has its code
    label: str = ""  # the same for people, with the commit
    commit: str | None = None
    changed: tuple[str, ...] = ()  # since then: files, packages, variables
    unchanged: bool = False  # nothing that can run again changed: it was not launched
    # It is red, and its code is that of the newest red session: it was not launched.
    as_before: bool = False
    machine: tuple[str, ...] = ()  # of unchanged code: what differs is the machine's
    pairs: int = 0  # of launches
    seconds: float = 0.0
    lines: tuple[Site, ...] = ()  # edited ones that do more; the costliest first
    causes: tuple[str, ...] = ()  # what a slower case does otherwise, in words
    searched: bool = False  # the commits since were searched for the one that made it slower
    culprit: Culprit | None = None  # that the search found; None: it found none, or there was none
    needed_s: float | None = None  # undecided: the time that would be enough
    problem: str | None = None  # why it could not be launched, or whose code was taken instead
