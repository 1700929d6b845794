"""Can one link have done all this? A test that needs no fit.

The same bytes between the same ranks take the same time T, however large the batch. Of T at least
all that computing cannot hide shows: exposed ≤ T ≤ exposed + what can be hidden. Two batches whose
ranges of T do not meet contradict each other, whatever the link.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """What showed of the communication of one batch, in seconds."""

    label: str
    exposed_s: float  # step time(N) − step time(1); negative where N took less
    slack_s: float  # how far both step times let it be off
    hideable_s: float  # at most so much more was hidden

    @property
    def least_s(self) -> float:
        return max(0.0, self.exposed_s - self.slack_s)

    @property
    def most_s(self) -> float:
        return max(0.0, self.exposed_s + self.slack_s) + self.hideable_s


def contradiction(exposures: Sequence[Exposure]) -> tuple[Exposure, Exposure] | None:
    """The two that are furthest from one communication time, the longer first; None: one fits."""
    apart = [
        (longer.least_s - shorter.most_s, longer, shorter)
        for longer, shorter in itertools.permutations(exposures, 2)
        if longer.least_s > shorter.most_s
    ]
    if not apart:
        return None
    _, longer, shorter = max(apart, key=lambda pair: pair[0])
    return longer, shorter
