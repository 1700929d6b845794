"""Traces of a run's ranks: where each one's time went, and how the ranks differ."""

from __future__ import annotations

import collections
import functools
import heapq
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddp_perf.errors import TraceError
from ddp_perf.traces.chrome import (
    CallKind,
    ChromeTrace,
    CollectiveTotal,
    HtaSplit,
    KernelCount,
    KernelCounts,
    KernelTotal,
    Message,
    RankComparison,
    RankSkew,
    RankTrace,
    StepSplit,
    TimeSplit,
    TraceAnalysis,
    read_chrome_trace,
)
from ddp_perf.traces.timeline import Intervals, Kind, Timeline, covered, merged, timeline_of, union

# Counts of the work of a GPU in each step: kernels, collectives, copies, fills, and host waits.
#
# Unlike times they need no quiet machine: of the same program they are equal in every step.


_FILLS = ("Memset", "FillBuffer", "__amd_rocclr_fill")


def kernel_counts(timeline: Timeline) -> KernelCounts | None:
    """Count the calls by kind and name in each annotated step; None without a GPU."""
    if not timeline.on_device:
        return None
    found: collections.Counter[tuple[CallKind, str, int]] = collections.Counter()
    of_work = zip(timeline.names, timeline.kinds, _step_of_work(timeline).tolist(), strict=True)
    for name, kind, step in of_work:
        if kind:
            found[_kind(kind, name), name, step] += 1
    for name, start in timeline.synchronisations:
        found["synchronisation", name, _step_during(timeline, start)] += 1
    steps = range(len(timeline.steps.numbers) or 1)
    names = sorted({(kind, name) for kind, name, step in found if step in steps})
    return KernelCounts(
        steps=timeline.steps.numbers,
        counts=tuple(
            KernelCount(
                kind=kind, name=name, calls=tuple(found[kind, name, step] for step in steps)
            )
            for kind, name in names
        ),
    )


def _step_of_work(timeline: Timeline) -> NDArray[np.intp]:
    """Return the index of the step that launched each event; −1: none of them.

    A trace that has launches lacks those from before its beginning: their work is of an earlier
    step. Without annotated steps the whole trace is step 0.
    """
    if not timeline.steps.numbers:
        return np.zeros(len(timeline.names), dtype=np.intp)
    unknown = np.isnan(timeline.launched)
    return timeline.step() if unknown.all() else np.where(unknown, -1, timeline.step())


def _kind(kind: Kind, name: str) -> CallKind:
    if kind == "memory":
        return "fill" if name.startswith(_FILLS) else "copy"
    return "collective" if kind == "communication" else "kernel"


def _step_during(timeline: Timeline, start: float) -> int:
    """Return the index of the step in which a call of the host begins; −1: in none.

    Without annotated steps the whole trace is step 0.
    """
    steps = timeline.steps.intervals
    if not len(steps.start):
        return 0
    index = int(np.searchsorted(steps.start, start, side="right")) - 1
    return index if index >= 0 and start < steps.end[index] else -1


# The split of a rank's time: computation, communication, memory and idle.
#
# The parts of a rank's window add up to the window: computation; communication that no computation
# hides; memory operations that neither of them hides; idle time. The window begins with the first
# counted event and ends with the last one. The overlap ratio is |communication ∩ computation| ÷
# |communication|, over unions of intervals: work on several streams at once counts once.


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


# The skew of the ranks: which rank is the last in the collectives that they share.
#
# All ranks leave a collective together, so only the time before it shows the slowest rank. The
# first rank waits in the collective for the last one. With one clock, the starts give the delay.
# With different clocks, the lengths give it: the last rank has the shortest collective.


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


# The split of each annotated step: its length and its exposed communication.


def steps_of(timeline: Timeline) -> tuple[StepSplit, ...]:
    """Return the steps in order of their start; empty if the trace has no ProfilerStep."""
    steps = timeline.steps
    if not steps.numbers:
        return ()
    step, computation = timeline.step(), merged(timeline.of("computation"))
    rows = {kind: timeline.kinds == kind for kind in ("computation", "communication")}
    found = []
    for i, number in enumerate(steps.numbers):
        of_step = {
            kind: merged(timeline.intervals.where((step == i) & of_kind))
            for kind, of_kind in rows.items()
        }
        communication = of_step["communication"]
        hidden = float(covered(communication, computation).sum())
        found.append(
            StepSplit(
                number=number,
                step_s=float(steps.intervals.lengths[i]) * US,
                computation_s=of_step["computation"].length * US,
                communication_s=communication.length * US,
                exposed_communication_s=max(communication.length - hidden, 0.0) * US,
            )
        )
    return tuple(found)


# The longest kernels (without a GPU: operators) and collectives of a trace.


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


# Traces of a run's ranks: where each one's time went, and how the ranks differ.


_REMEDY = "profile with torch.profiler's activities CPU and CUDA"
_RANK_IN_NAME = re.compile(r"rank[-_.=]?(\d+)", re.IGNORECASE)


def analyse_traces(paths: Sequence[Path]) -> TraceAnalysis:
    """Read and analyse the files, one for each rank.

    Raises TraceError if a file is not a trace, has no work, or belongs to the rank of another file.
    """
    traces: dict[int, RankTrace] = {}
    timelines: dict[int, Timeline] = {}
    for path in paths:
        trace = read_chrome_trace(path)
        rank = _rank_of(path, trace, default=len(traces))
        if rank in traces:
            raise TraceError(
                f"{path}: is of rank {rank}, and so is {traces[rank].file}; give one file a rank"
            )
        timelines[rank] = timeline_of(trace)
        traces[rank] = _rank_trace(path, rank, trace, timelines[rank])
    ranks = sorted(traces)
    timelines = {rank: timelines[rank] for rank in ranks}
    hosts = {trace.host for trace in traces.values() if trace.host is not None}
    return TraceAnalysis(
        ranks=tuple(traces[rank] for rank in ranks),
        kernels=top_kernels(list(timelines.values())),
        collectives=top_collectives(list(timelines.values())),
        comparison=compare_ranks(timelines, hosts=hosts) if len(ranks) > 1 else None,
    )


def _rank_of(path: Path, trace: ChromeTrace, *, default: int) -> int:
    """Return the rank from the trace, else from the file's name, else `default`."""
    if trace.distributed.rank is not None:
        return trace.distributed.rank
    found = _RANK_IN_NAME.search(path.name)
    return int(found[1]) if found else default


def _rank_trace(path: Path, rank: int, trace: ChromeTrace, timeline: Timeline) -> RankTrace:
    if timeline.lacks_device:
        raise TraceError(f"{path}: has launches on a GPU, but no kernel; {_REMEDY}")
    if not any(timeline.kinds):
        raise TraceError(f"{path}: has no kernel, and no operator of a CPU; {_REMEDY}")
    return RankTrace(
        file=str(path),
        rank=rank,
        world_size=trace.distributed.world_size,
        backend=trace.distributed.backend,
        host=trace.host,
        device=_device_name(trace, timeline),
        split=split_of(timeline),
        hta=hta_split_of(timeline),
        steps=steps_of(timeline),
        dropped=timeline.dropped,
        counts=kernel_counts(timeline),
    )


def _device_name(trace: ChromeTrace, timeline: Timeline) -> str | None:
    if not timeline.on_device:
        return "CPU"
    names = {device.name for device in trace.devices if device.name}
    return " and ".join(sorted(names)) or None
