"""The split of a rank's time: computation, communication, memory and idle.

The parts of a rank's window add up to the window: computation; communication that no computation
hides; memory operations that neither of them hides; idle time. The window begins with the first
counted event and ends with the last one. The overlap ratio is |communication ∩ computation| ÷
|communication|, over unions of intervals: work on several streams at once counts once.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from ddp_perf.traces.intervals import Intervals, covered, merged, union
from ddp_perf.traces.timeline import Timeline
from ddp_perf.traces.values import HtaSplit, TimeSplit

US = 1e-6  # seconds


def split_of(timeline: Timeline) -> TimeSplit:
    """Split the time of all counted events of a trace. Raises ValueError if there is none."""
    computation = merged(timeline.of("computation"))
    communication = merged(timeline.of("communication"))
    memory = merged(timeline.of("memory"))
    busy = union(computation, communication)
    hidden = float(covered(communication, computation).sum())
    everything = union(busy, memory)
    window = float(everything.end.max() - everything.start.min())
    return TimeSplit(
        window_s=window * US,
        computation_s=computation.length * US,
        communication_s=communication.length * US,
        exposed_communication_s=max(communication.length - hidden, 0.0) * US,
        memory_s=memory.length * US,
        exposed_memory_s=max(everything.length - busy.length, 0.0) * US,
        idle_s=max(window - everything.length, 0.0) * US,
        overlap=_share(hidden, communication.length),
    )


# From HTA's hta/utils/utils.py (MIT), unchanged.
_HTA_COMMUNICATION = re.compile(r"^nccl.*Kernel")
_HTA_MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")
_HTA_NO_COMPUTATION = re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")


def hta_split_of(timeline: Timeline) -> HtaSplit | None:
    """Return HTA's temporal breakdown and overlap; None without a GPU or without selected events.

    HTA selects events with a stream, and rounds their starts up and their ends down to whole µs.
    With two annotated steps or more it keeps only events that were launched before the last step
    began. It classifies by name, and counts waits of a stream as work.
    """
    if not timeline.on_device:
        return None
    chosen = timeline.on_stream.copy()
    if len(timeline.steps.numbers) > 1:
        # NaN is a launch that is not in the trace: the comparison is false.
        chosen &= timeline.launched < timeline.steps.intervals.start[-1]
    if not chosen.any():
        return None
    start, end = (times[chosen] + timeline.origin_us for times in timeline.intervals)
    events = Intervals(
        np.ceil(start) - timeline.origin_us, np.floor(end) - timeline.origin_us
    )  # an event under 1 µs may get a negative length, as in HTA
    kinds = np.array([_hta_kind(timeline.names[row]) for row in np.flatnonzero(chosen)])
    computation = merged(events.where(kinds == "computation"))
    communication = merged(events.where(kinds == "communication"))
    everything = merged(events)
    window = float(everything.end[-1] - everything.start[0])
    idle = window - everything.length
    hidden = float(covered(communication, _forward(computation)).sum())
    return HtaSplit(
        computation_s=computation.length * US,
        idle_s=idle * US,
        other_s=(window - computation.length - idle) * US,
        overlap=_share(hidden, communication.length),
    )


def _forward(intervals: Intervals) -> Intervals:
    return intervals.where(intervals.end > intervals.start)


@functools.cache
def _hta_kind(name: str) -> str:
    if _HTA_COMMUNICATION.match(name):
        return "communication"
    if _HTA_MEMORY.match(name):
        return "memory"
    return "other" if _HTA_NO_COMPUTATION.match(name) else "computation"


def _share(part: float, whole: float) -> float | None:
    """Return the ratio, clipped to 0 to 1: sums of many lengths have rounding errors."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else None
