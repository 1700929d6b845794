"""The skew of the ranks: which rank is the last in the collectives that they share.

All ranks leave a collective together, so only the time before it shows the slowest rank. The first
rank waits in the collective for the last one. With one clock, the starts give the delay. With
different clocks, the lengths give it: the last rank has the shortest collective.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping

import msgspec
import numpy as np

from ddp_perf.traces.split import US
from ddp_perf.traces.timeline import Timeline
from ddp_perf.traces.values import RankComparison, RankSkew


class _Call(msgspec.Struct, frozen=True):
    rank: int
    start: float
    end: float


def compare_ranks(
    timelines: Mapping[int, Timeline], *, hosts: Collection[str] = ()
) -> RankComparison:
    """Match the collectives of the ranks, and find the rank that is last. Times in seconds.

    ``hosts`` are those of the files. The clocks of several hosts may agree to a millisecond, and
    look like one clock that is wrong, so they are never compared.
    """
    calls, unmatched = _matched(timelines)
    one_clock = len(hosts) < 2 and _is_one_clock(calls)
    behind: dict[int, list[float]] = {rank: [] for rank in timelines}
    last: collections.Counter[int] = collections.Counter()
    skews = []
    for of_call in calls:
        late = [call.start if one_clock else -(call.end - call.start) for call in of_call]
        skews.append(max(late) - min(late))
        for call, value in zip(of_call, late, strict=True):
            behind[call.rank].append(value - min(late))
        if skews[-1] > 0:
            last[of_call[late.index(max(late))].rank] += 1
    return RankComparison(
        matched=len(calls),
        unmatched=unmatched,
        one_clock=one_clock,
        hosts=max(1, len(hosts)),
        median_skew_s=float(np.median(skews)) * US if skews else None,
        largest_skew_s=max(skews) * US if skews else None,
        slowest=next((rank for rank in timelines if last[rank] > len(calls) / 2), None),
        ranks=tuple(
            RankSkew(
                rank=rank,
                collectives=len(values),
                last=last[rank],
                behind_s=float(np.median(values)) * US if values else 0.0,
            )
            for rank, values in behind.items()
        ),
    )


def _matched(timelines: Mapping[int, Timeline]) -> tuple[list[list[_Call]], int]:
    """Return calls with the same key on two ranks or more, and the number of unmatched calls.

    If ranks have different numbers of calls of a key, these calls cannot be matched.
    """
    common = set.intersection(*(set(timeline.steps.numbers) for timeline in timelines.values()))
    first = next(iter(timelines.values()))
    found: dict[tuple[object, ...], dict[int, list[_Call]]] = collections.defaultdict(dict)
    for rank, timeline in timelines.items():
        # Small differences first: a float of the time since 1970 has no fractions of µs.
        shift = (timeline.base_us - first.base_us) + (timeline.origin_us - first.origin_us)
        step = timeline.step()
        for row, message in timeline.messages.items():
            number = timeline.steps.numbers[step[row]] if step[row] >= 0 else None
            if common and number not in common:
                continue
            start, end = (float(times[row]) + shift for times in timeline.intervals)
            key = (number if common else None, message.kind, message.group, message.group_ranks)
            found[key].setdefault(rank, []).append(_Call(rank, start, end))
    matched, unmatched = [], 0
    for by_rank in found.values():
        counts = {len(calls) for calls in by_rank.values()}
        if len(by_rank) > 1 and len(counts) == 1:
            matched += [list(calls) for calls in zip(*by_rank.values(), strict=True)]
        else:
            unmatched += sum(len(calls) for calls in by_rank.values())
    return matched, unmatched


def _is_one_clock(calls: list[list[_Call]]) -> bool:
    """Return whether in most collectives there is a time at which all ranks are in it."""
    together = [max(c.start for c in call) <= min(c.end for c in call) for call in calls]
    return sum(together) >= len(together) / 2
