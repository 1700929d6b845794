"""A test, without a fit, whether one link can explain several batches.

The same bytes between the same ranks take the same time T for any batch. The part of T that
computation cannot hide is scaling overhead: overhead ≤ T ≤ overhead + what can be hidden. Two
batches whose ranges of T do not overlap contradict each other, for any link.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from ddp_perf.scaling.curves import ScalingCurve
from ddp_perf.scaling.shape import StepShape
from ddp_perf.stats.link.model import bus_factor


class BatchOverhead(msgspec.Struct, frozen=True, kw_only=True):
    """The scaling overhead of one batch at one world size, in seconds."""

    label: str
    overhead_s: float  # T_N − T_1; negative if N ranks are faster
    slack_s: float  # uncertainty from both step times
    hideable_s: float  # upper bound of what was hidden

    @property
    def least_s(self) -> float:
        """The lower bound of the communication time."""
        return max(0.0, self.overhead_s - self.slack_s)

    @property
    def most_s(self) -> float:
        """The upper bound of the communication time."""
        return max(0.0, self.overhead_s + self.slack_s) + self.hideable_s


def contradiction(overheads: Sequence[BatchOverhead]) -> tuple[BatchOverhead, BatchOverhead] | None:
    """Return the two batches that contradict each other most, the longer first.

    Return None if one communication time fits all batches.
    """
    apart = [
        (longer.least_s - shorter.most_s, longer, shorter)
        for longer, shorter in itertools.permutations(overheads, 2)
        if longer.least_s > shorter.most_s
    ]
    if not apart:
        return None
    _, longer, shorter = max(apart, key=lambda pair: pair[0])
    return longer, shorter


_SLACK = 2  # standard errors of a step time


def link_clashes(series: Sequence[ScalingCurve]) -> dict[int, str]:
    """Return the reason for each curve that contradicts another one of the same work.

    The keys are positions in `series`. Nothing can be predicted from these curves.
    """
    reasons: dict[int, str] = {}
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(series):
        if one.strong:
            continue  # the compute of N ranks is not that of one, and not known
        exchanges = [(e.kind, e.payload) for e in one.work.shape.exchanges]
        groups.setdefault(
            repr((one.where, one.work.strategy, one.ranks_per_node, exchanges)), []
        ).append(i)
    for members in groups.values():
        sizes = {point.world_size for i in members for point in series[i].points}
        for ranks in sorted(sizes - {1}):
            overheads = [e for i in members if (e := _overhead(series[i], ranks)) is not None]
            if found := contradiction(overheads):
                why = _why(series[members[0]].work.shape, ranks, *found)
                reasons |= dict.fromkeys(members, why)
    return reasons


def _overhead(series: ScalingCurve, ranks: int) -> BatchOverhead | None:
    by_size = {point.world_size: point for point in series.points}
    if 1 not in by_size or ranks not in by_size:
        return None
    single, several = by_size[1], by_size[ranks]
    slack_s = _SLACK * (single.step_s * single.uncertainty + several.step_s * several.uncertainty)
    return BatchOverhead(
        label=series.label,
        overhead_s=several.step_s - single.step_s,
        slack_s=slack_s,
        hideable_s=series.work.shape.hideable_s(single.step_s),
    )


def _why(shape: StepShape, ranks: int, longer: BatchOverhead, shorter: BatchOverhead) -> str:
    size = f" {shape.payload / 1e6:,.1f} MB" if shape.payload_known else " gradients"
    hidden = (
        f"at most {shorter.hideable_s * 1e3:.1f} ms of it can hide"
        if shorter.hideable_s
        else "none of it can hide (the bucket is full only when the backward ends)"
    )
    return (
        f"contradiction: {ranks} ranks exchange the same{size} at any batch, and {hidden};"
        f" but {_shown(longer, shape, ranks)}, and {_shown(shorter, shape, ranks)}. No fixed link"
        " explains both: a figure is wrong, or the time is not spent on the transfer"
    )


def _shown(overhead: BatchOverhead, shape: StepShape, ranks: int) -> str:
    text = (
        f"{overhead.overhead_s * 1e3:.1f} ± {overhead.slack_s * 1e3:.1f} ms are added at"
        f" {overhead.label}"
    )
    if not shape.payload_known or overhead.overhead_s <= 0:
        return text
    sent = sum(e.payload * bus_factor(e.kind, ranks) for e in shape.exchanges)
    return f"{text} ({sent / overhead.overhead_s / 1e9:.1f} GB/s of bus bandwidth)"
