"""The values that `fit` returns of a link; they need neither numpy nor scipy."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.collective import CollectiveKind
from ddp_perf.stats.link.model import Link

Interval = tuple[float, float]
Part = Literal["latency", "bandwidth"]


class LinkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one call of a collective."""

    payload: int  # bytes, as in `model`
    seconds: float


class LinkFit(msgspec.Struct, frozen=True, kw_only=True):
    """The latency and bandwidth of a link, fitted to one collective, with 95 % intervals."""

    kind: CollectiveKind
    ranks: int
    link: Link
    latency_s: Interval
    bytes_per_s: Interval
    misfit: float  # root mean square of the relative residuals
    points: tuple[LinkPoint, ...]  # one for each size, median over launches, smallest first


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one part now ÷ before: 2 is half the speed."""

    ratio: float
    sessions: Interval | None = None  # range of the same ratio over the sessions before, if several


class LinkShift(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a link since earlier sessions. It is a description, not a test."""

    latency: Shift
    bandwidth: Shift  # of the time for a byte

    def slower(self, tolerance: float) -> list[Part]:
        """Return the parts that are slower by ``tolerance``, and than in any session before."""
        parts: dict[Part, Shift] = {"latency": self.latency, "bandwidth": self.bandwidth}
        return [
            name
            for name, shift in parts.items()
            if shift.ratio >= 1 + tolerance
            and (shift.sessions is None or shift.ratio > shift.sessions[1])
        ]
