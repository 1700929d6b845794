"""The cases that launches must decide, and which of them fit into the time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.duel.room import FIRST_LOOK, MARGIN
from ddp_perf.settle.references import Changed, Reference

SERVERS_S = 15.0  # to start two servers, each of which imports torch


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A case that needs the second stage, and the sessions whose code it may be compared with."""

    case: Case
    suspicion: float
    launch_s: float
    references: tuple[Reference, ...]  # the first one is taken; the others if it does not run
    changed: Changed
    skipped: tuple[str, ...] = ()  # why older references do not run

    @property
    def first_look_s(self) -> float:
        return 2 * FIRST_LOOK * self.launch_s


def fitting(waiting: Sequence[Suspect], left_s: float) -> list[Suspect]:
    """Return the most suspicious cases of one reference that have room for a first look.

    One that has none, as its launches take long, leaves the time to those after it.
    """
    batch: list[Suspect] = []
    left_s -= SERVERS_S
    for one in waiting:
        room_s = MARGIN * one.first_look_s
        if room_s <= left_s and (not batch or _code(one) == _code(batch[0])):
            left_s -= room_s
            batch.append(one)
    return batch


def _code(one: Suspect) -> tuple[str | None, str | None]:
    """Return what names the code of its reference: the tree, and the packages."""
    return one.references[0].state.tree, one.references[0].packages
