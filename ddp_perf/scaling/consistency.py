"""Can one link have done all this? A test that needs no fit.

The same bytes between the same ranks take the same time T, however large the batch. Of T at least
all that computing cannot hide shows: exposed ≤ T ≤ exposed + what can be hidden. Two batches whose
ranges of T do not meet contradict each other, whatever the link.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.scaling.shape import StepShape
from ddp_perf.stats.link.model import bus_factor


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """What showed of the communication of one batch, in seconds."""

    label: str
    overhead_s: float  # step time(N) − step time(1); negative where N took less
    slack_s: float  # how far both step times let it be off
    hideable_s: float  # at most so much more was hidden

    @property
    def least_s(self) -> float:
        return max(0.0, self.overhead_s - self.slack_s)

    @property
    def most_s(self) -> float:
        return max(0.0, self.overhead_s + self.slack_s) + self.hideable_s


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


_SLACK = 2  # standard errors of a step time


def link_clashes(series: Sequence[ScalingCurve]) -> dict[int, str]:
    """Why each series that contradicts another of the same work is none to predict from, by its
    number.
    """
    reasons: dict[int, str] = {}
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(series):
        exchanges = [(e.kind, e.payload) for e in one.work.shape.exchanges]
        groups.setdefault(repr((one.where, one.work.strategy, exchanges)), []).append(i)
    for members in groups.values():
        sizes = {point.world_size for i in members for point in series[i].points}
        for ranks in sorted(sizes - {1}):
            exposures = [e for i in members if (e := _exposure(series[i], ranks)) is not None]
            if found := contradiction(exposures):
                why = _why(series[members[0]].work.shape, ranks, *found)
                reasons |= dict.fromkeys(members, why)
    return reasons


def _exposure(series: ScalingCurve, ranks: int) -> Exposure | None:
    by_size = {point.world_size: point for point in series.points}
    if 1 not in by_size or ranks not in by_size:
        return None
    single, several = by_size[1], by_size[ranks]
    slack_s = _SLACK * (single.step_s * single.uncertainty + several.step_s * several.uncertainty)
    return Exposure(
        label=series.label,
        overhead_s=several.step_s - single.step_s,
        slack_s=slack_s,
        hideable_s=series.work.shape.hideable_s(single.step_s),
    )


def _why(shape: StepShape, ranks: int, longer: Exposure, shorter: Exposure) -> str:
    size = f" {shape.payload / 1e6:,.1f} MB" if shape.payload_known else " gradients"
    hidden = (
        f"at most {shorter.hideable_s * 1e3:.1f} ms of it can hide"
        if shorter.hideable_s
        else "none of it can hide (their bucket is full only when the backward ends)"
    )
    return (
        f"contradiction: {ranks} ranks exchange the same{size} at any batch, and {hidden};"
        f" yet {_shown(longer, shape, ranks)}, and {_shown(shorter, shape, ranks)}."
        " No fixed link does both: a figure is wrong, or what takes the time is no transfer"
    )


def _shown(exposure: Exposure, shape: StepShape, ranks: int) -> str:
    overhead_ms, slack_ms = exposure.overhead_s * 1e3, exposure.slack_s * 1e3
    text = f"{overhead_ms:.1f} ± {slack_ms:.1f} ms show at {exposure.label}"
    if not shape.payload_known or exposure.overhead_s <= 0:
        return text
    sent = sum(e.payload * bus_factor(e.kind, ranks) for e in shape.exchanges)
    return f"{text} ({sent / exposure.overhead_s / 1e9:.1f} GB/s of bus bandwidth)"
