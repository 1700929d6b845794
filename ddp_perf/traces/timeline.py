"""What one rank did when: the events of its trace that count, in columns.

On a GPU what its streams run counts, and collectives that the host carries out (gloo's).
Without a GPU: operators that compute, by thread, and collectives on their workers' threads.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddp_perf.stats.robust import Floats
from ddp_perf.traces.chrome import ChromeTrace, TraceEvent, decode_args
from ddp_perf.traces.intervals import Intervals
from ddp_perf.traces.kinds import (
    WAITS,
    Kind,
    device_kind,
    is_host_collective,
    is_host_work,
    is_launch,
    is_mark,
    step_number,
)
from ddp_perf.traces.messages import messages_of
from ddp_perf.traces.values import Message


class AnnotatedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The annotated steps, by their start; none where the profiler was told of none."""

    numbers: tuple[int, ...]
    intervals: Intervals


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of one length, by start. Times in µs since the first of these events."""

    names: tuple[str, ...]
    kinds: NDArray[np.str_]  # a Kind; empty for what a stream only waits for
    intervals: Intervals
    own: Floats  # µs: on the host without the operators that an operator calls
    launched: Floats  # when the host started it; NaN: its launch is not in the trace
    on_stream: NDArray[np.bool_]  # whether its arguments name a stream
    messages: Mapping[int, Message]  # of each communication, by row
    on_device: bool
    lacks_device: bool  # the host started work on a GPU, and none of it is in the trace
    steps: AnnotatedSteps
    origin_us: float  # the first event by the file's own clock
    base_us: float  # Unix time that this clock counts from; 0: the trace does not say
    dropped: int  # ranges without a time, and entries that are no event

    def of(self, kind: Kind) -> Intervals:
        return self.intervals.where(self.kinds == kind)

    def step(self) -> NDArray[np.intp]:
        """Which step each belongs to: the last that had begun when it was launched, or, where
        its launch is not known, when it started. −1 before the first, and without steps.
        """
        began = np.where(np.isnan(self.launched), self.intervals.start, self.launched)
        return np.searchsorted(self.steps.intervals.start, began, side="right") - 1


class _Tie(msgspec.Struct, frozen=True, gc=False):
    """What ties an event on a GPU to the call that started it."""

    stream: int | str | None = None
    correlation: int | str | None = None
    collective: str | None = msgspec.field(name="Collective name", default=None)

    @property
    def on_stream(self) -> bool:
        """Whether it names a stream by its number: −1 is none, nor is an address."""
        return str(self.stream).isdecimal()


class _Row(msgspec.Struct, frozen=True, gc=False):
    event: TraceEvent
    kind: Kind | None
    launch: TraceEvent | None = None
    on_stream: bool = False


_Ranges = Mapping[str, Sequence[TraceEvent]]  # finished ones, by category in small letters


def timeline_of(trace: ChromeTrace) -> Timeline:
    """The rows that count; none where the trace holds nothing of the kind."""
    ranges, untimed = _finished(trace.events)
    marks = [event for event in _host(ranges) if is_mark(event.name)]
    rows = list(_device_rows(ranges))
    on_device = any(row.kind for row in rows)
    if on_device:
        rows += _stream_rows(ranges)
    rows += [_Row(event, "communication") for event in marks if is_host_collective(event.name)]
    if not on_device:
        rows += _work_rows(ranges, workers={row.event.tid for row in rows})
    rows.sort(key=lambda row: (row.event.ts, -row.event.dur))
    origin = rows[0].event.ts if rows else 0.0
    start, duration = (
        np.array([getattr(row.event, field) for row in rows], dtype=float)
        for field in ("ts", "dur")
    )
    launched = [row.launch.ts if row.launch else np.nan for row in rows]
    return Timeline(
        names=tuple(row.event.name for row in rows),
        kinds=np.array([row.kind or "" for row in rows], dtype="U13"),
        intervals=Intervals(start - origin, start - origin + duration),
        own=duration if on_device else _own_time([row.event for row in rows]),
        launched=np.array(launched, dtype=float) - origin,
        on_stream=np.array([row.on_stream for row in rows], dtype=bool),
        messages=messages_of(
            {
                number: (row.event, row.launch)
                for number, row in enumerate(rows)
                if row.kind == "communication"
            },
            marks,
        ),
        on_device=on_device,
        lacks_device=not on_device and _used_device(ranges, marks),
        steps=_steps(marks, origin),
        origin_us=origin,
        base_us=trace.base_ns / 1e3,
        dropped=trace.dropped + untimed,
    )


def _finished(events: Iterable[TraceEvent]) -> tuple[_Ranges, int]:
    """Ranges with a start and a length, and how many lack one."""
    ranges: dict[str, list[TraceEvent]] = collections.defaultdict(list)
    untimed = 0
    for event in events:
        if event.ph != "X" or event.cat is None:
            continue
        if event.dur >= 0 and event.ts == event.ts:  # neither is NaN
            ranges[event.cat].append(event)
        else:
            untimed += 1
    lower: dict[str, list[TraceEvent]] = collections.defaultdict(list)
    for category, of_category in ranges.items():
        lower[category.lower()] += of_category
    return lower, untimed


def _host(ranges: _Ranges) -> list[TraceEvent]:
    """What the host did, but for calls of the GPU's runtime."""
    categories = ("user_annotation", "cpu_op", "operator")
    return [event for category in categories for event in ranges.get(category, ())]


def _device_rows(ranges: _Ranges) -> Iterator[_Row]:
    launches: dict[object, TraceEvent] = {}
    for category, events in ranges.items():
        if is_launch(category):
            ties = decode_args(events, _Tie)
            launches |= {tie.correlation: e for tie, e in zip(ties, events, strict=True)}
    launches.pop(None, None)
    for category, events in ranges.items():
        if category not in WAITS and device_kind(category, "") is None:
            continue
        for tie, event in zip(decode_args(events, _Tie), events, strict=True):
            kind = device_kind(category, event.name, is_collective=tie.collective is not None)
            yield _Row(event, kind, launches.get(tie.correlation), tie.on_stream)


def _stream_rows(ranges: _Ranges) -> Iterator[_Row]:
    """Operators that name a stream, as Triton's launches do. They run on the host, so they are
    no kind of work here; HTA takes them for kernels.
    """
    events = [event for event in _host(ranges) if b'"stream"' in bytes(event.args)]
    for tie, event in zip(decode_args(events, _Tie), events, strict=True):
        if tie.on_stream:
            yield _Row(event, None, on_stream=True)


def _used_device(ranges: _Ranges, marks: Iterable[TraceEvent]) -> bool:
    """Whether the host started work on a GPU: kernels, graphs, collectives; or on Meta's."""
    started = (event for name, of in ranges.items() if is_launch(name) for event in of)
    return (
        "mtia_runtime" in ranges
        or any("Launch" in event.name for event in started)
        or any(event.name.startswith("nccl:") for event in marks)
    )


def _work_rows(ranges: _Ranges, workers: set[object]) -> Iterator[_Row]:
    """The operators of every thread but those that carry out collectives."""
    work = [event for event in _host(ranges) if is_host_work(event.cat, event.name)]
    busiest = collections.Counter(event.tid for event in work).most_common(1)
    workers -= {tid for tid, _ in busiest}  # older torch puts the range on the caller's thread
    for event in work:
        if event.tid not in workers:
            yield _Row(event, "computation")


def _own_time(events: Sequence[TraceEvent]) -> Floats:
    """µs of each range without those nested in it, thread by thread. By start, longest first."""
    own: Floats = np.array([event.dur for event in events], dtype=float)
    open_: dict[object, list[int]] = collections.defaultdict(list)
    for row, event in enumerate(events):
        stack = open_[event.tid]
        while stack and _end(events[stack[-1]]) <= event.ts:
            stack.pop()
        if stack:
            own[stack[-1]] -= event.dur
        stack.append(row)
    return own


def _end(event: TraceEvent) -> float:
    return event.ts + event.dur


def _steps(marks: Iterable[TraceEvent], origin: float) -> AnnotatedSteps:
    numbered = {step_number(event.name): event for event in marks}
    numbered.pop(None, None)
    steps = sorted(numbered.items(), key=lambda item: item[1].ts)
    start = np.array([event.ts for _, event in steps], dtype=float) - origin
    return AnnotatedSteps(
        numbers=tuple(number for number, _ in steps if number is not None),
        intervals=Intervals(start, start + np.array([e.dur for _, e in steps], dtype=float)),
    )
