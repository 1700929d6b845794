"""The longest kernels (without a GPU: operators) and collectives of a trace."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Sequence

import numpy as np

from ddp_perf.traces.intervals import covered, merged
from ddp_perf.traces.split import US
from ddp_perf.traces.timeline import Timeline
from ddp_perf.traces.values import CollectiveTotal, KernelTotal, Message

TOP = 20


def top_kernels(timelines: Sequence[Timeline]) -> tuple[KernelTotal, ...]:
    """Return at most TOP kernels of computation and memory, the longest total time first."""
    calls: collections.Counter[str] = collections.Counter()
    total: dict[str, float] = collections.defaultdict(float)
    for timeline in timelines:
        rows = np.flatnonzero(np.isin(timeline.kinds, ("computation", "memory")))
        for row, own in zip(rows, timeline.own[rows].tolist(), strict=True):
            name = timeline.names[row]
            calls[name] += 1
            total[name] += own
    return tuple(
        KernelTotal(name=name, calls=calls[name], total_s=us * US)
        for name, us in heapq.nlargest(TOP, total.items(), key=_time)
    )


def top_collectives(timelines: Sequence[Timeline]) -> tuple[CollectiveTotal, ...]:
    """Return at most TOP collectives, the longest total time first."""
    calls: collections.Counter[Message] = collections.Counter()
    total: dict[Message, float] = collections.defaultdict(float)
    exposed: dict[Message, float] = collections.defaultdict(float)
    for timeline in timelines:
        computation = merged(timeline.of("computation"))
        lengths = timeline.intervals.lengths
        hidden = covered(timeline.intervals, computation)
        for row, message in timeline.messages.items():
            calls[message] += 1
            total[message] += float(lengths[row])
            exposed[message] += float(lengths[row] - hidden[row])
    return tuple(
        CollectiveTotal(
            message=message,
            calls=calls[message],
            total_s=us * US,
            exposed_s=max(exposed[message], 0.0) * US,
        )
        for message, us in heapq.nlargest(TOP, total.items(), key=_time)
    )


def _time(item: tuple[object, float]) -> float:
    return item[1]
