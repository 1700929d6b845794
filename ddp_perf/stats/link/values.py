"""What `link_fit` says of a link: values alone, which need neither numpy nor scipy."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.collective import CollectiveKind
from ddp_perf.stats.link.model import Link

Interval = tuple[float, float]
Part = Literal["latency", "bandwidth"]


class LinkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How long one call took."""

    payload: int  # bytes, as in `alpha_beta`
    seconds: float


class LinkFit(msgspec.Struct, frozen=True, kw_only=True):
    """What one collective over so many ranks says of the link, with 95 % intervals."""

    kind: CollectiveKind
    ranks: int
    link: Link
    latency_s: Interval
    bytes_per_s: Interval
    misfit: float  # root mean square of the relative residuals: how far α-β is from the truth
    points: tuple[LinkPoint, ...]  # one a size, median over launches, smallest first


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one part now ÷ before: 2 is half the speed."""

    ratio: float
    interval: Interval  # 95 %
    p_value: float  # of a slow-down as large by chance: one-sided, Student's t


class LinkShift(msgspec.Struct, frozen=True, kw_only=True):
    """How a link differs from what it was."""

    latency: Shift
    bandwidth: Shift  # of the time for a byte

    def slower(self, *, tolerance: float, level: float) -> list[Part]:
        """The parts that are slower significantly, and by ``tolerance`` at least."""
        parts: dict[Part, Shift] = {"latency": self.latency, "bandwidth": self.bandwidth}
        return [
            name
            for name, shift in parts.items()
            if shift.p_value < level and shift.ratio >= 1 + tolerance
        ]
