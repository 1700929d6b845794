"""The timeline of one rank: the events of its trace that count, by kind, in columns."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddp_perf.stats.robust import Floats
from ddp_perf.traces.chrome import ChromeTrace, Message, TraceEvent, decode_args, messages_of

# Unions and lengths of intervals of time, which may nest, overlap and have any order.


class Intervals(NamedTuple):
    """Starts and ends of intervals, in one unit. Intervals may overlap."""

    start: Floats
    end: Floats

    @property
    def lengths(self) -> Floats:
        """The length of each interval."""
        return self.end - self.start

    @property
    def length(self) -> float:
        """The sum of all lengths. Overlaps count several times, unless the intervals are merged."""
        return float(self.lengths.sum())

    def where(self, chosen: NDArray[np.bool_]) -> Intervals:
        """Return the intervals for which `chosen` is true."""
        return Intervals(self.start[chosen], self.end[chosen])


def merged(intervals: Intervals) -> Intervals:
    """Return the union of the intervals: disjoint, in order, touching ones joined."""
    if not len(intervals.start):
        return intervals
    order = np.argsort(intervals.start, kind="stable")
    start, end = intervals.start[order], intervals.end[order]
    reached = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(start[first], reached[last])


def union(*several: Intervals) -> Intervals:
    """Return the union of several sets of intervals."""
    return merged(
        Intervals(
            np.concatenate([one.start for one in several]),
            np.concatenate([one.end for one in several]),
        )
    )


def covered(intervals: Intervals, by: Intervals) -> Floats:
    """Return how much of each interval lies in `by`, which must be merged.

    It is the difference of a piecewise linear function: the length of `by` up to a time.
    """
    if not len(by.start):
        return np.zeros(len(intervals.start))
    times = np.stack([by.start, by.end], axis=1).ravel()
    before = np.concatenate([[0.0], np.cumsum(by.lengths)])
    lengths = np.stack([before[:-1], before[1:]], axis=1).ravel()
    inside: Floats = np.interp(intervals.end, times, lengths)
    inside -= np.interp(intervals.start, times, lengths)
    return inside


# The kind of an event of a trace: computation, communication or memory, on a GPU or on the host.
#
# Kernels of NCCL and RCCL have had several names (``ncclKernel_…`` up to 2.18, ``ncclDevKernel_…``
# since then, ``ncclSymk…``). Kernels of torch's symmetric memory and of custom all-reduces have
# others. On the host the range ``BACKEND:NAME`` marks a collective. Only gloo, MPI and UCC work on
# the host; a range of NCCL is the launch of a kernel. Names repeat, so results are cached.


Kind = Literal["computation", "communication", "memory"]

_KERNELS = {"kernel"}
_MEMORY = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}  # the short names before torch 1.12
_LAUNCHES = {"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "runtime"}
_OPERATORS = {"cpu_op", "operator"}
WAITS = {"cuda_sync"}  # of a stream for an event: not work, but HTA counts it

_COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|nvshmem|(one|two)_shot_all_reduce|multimem_|cross_device_reduce",
    re.IGNORECASE,
)
# AMD's runtime copies and fills with its own kernels.
_COPIES = re.compile(r"^(Memcpy|Memset|CopyHost|CopyDevice|FillBuffer|__amd_rocclr_(copy|fill))")
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):\w")
# Operators that compute. Autograd's and a compiler's wrappers contain others, and may wait. c10d's
# operators only pass work to a worker, or wait for it.
_OPERATOR = re.compile(r"(?!autograd::|torch::|c10d|_c10d|profiler::)\w+::|cpp_fused_")
# Calls in which the host waits for the GPU. A query does not wait.
_SYNCHRONISATION = re.compile(
    r"(cuda|hip)(Device|Stream|Event)Synchronize|cu(Ctx|Stream|Event)Synchronize"
    r"|(cuda|hip)(Memcpy(2D|3D|ToSymbol|FromSymbol|Peer)?|Free(Host)?)"
    r"|cuMemcpy(HtoD|DtoH)(_v2)?"
)
_STEP = re.compile(r"ProfilerStep#(\d+)")
_MARK = re.compile(rf"{_STEP.pattern}|(nccl|gloo|mpi|ucc):\w|record_param_comms")


@functools.cache
def device_kind(category: str | None, name: str, *, is_collective: bool = False) -> Kind | None:
    """Return the kind of an event on a GPU, by Kineto's category; None for any other event.

    An annotation has no kind. `is_collective` is true if the event's arguments name a collective.
    """
    category = (category or "").lower()
    if category in _MEMORY:
        return "memory"
    if category not in _KERNELS:
        return None
    if is_collective or _COMMUNICATION.search(name):
        return "communication"
    return "memory" if _COPIES.match(name) else "computation"


def is_launch(category: str | None) -> bool:
    """Return whether the event is a call of the host that starts work on a GPU."""
    return (category or "").lower() in _LAUNCHES


@functools.cache
def is_synchronisation(category: str | None, name: str) -> bool:
    """Return whether the event is a call of the GPU's runtime in which the host waits for it."""
    return is_launch(category) and _SYNCHRONISATION.fullmatch(name) is not None


@functools.cache
def is_mark(name: str) -> bool:
    """Return whether the event is an annotation of the host: a step or a collective."""
    return _MARK.match(name) is not None


def is_host_collective(name: str) -> bool:
    """Return whether the range is a collective that a host thread carries out."""
    return _HOST_COLLECTIVE.match(name) is not None


@functools.cache
def is_host_work(category: str | None, name: str) -> bool:
    """Return whether the event is an operator that computes on the host.

    An operator that wraps others, or waits, does not compute.
    """
    return (category or "").lower() in _OPERATORS and _OPERATOR.match(name) is not None


def step_number(name: str) -> int | None:
    """Return the number in torch.profiler's annotation of a step; None for another name."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None


# The timeline of one rank: the events of its trace that count, in columns.
#
# On a GPU the work of its streams counts, and collectives that the host carries out (gloo's).
# Without a GPU, operators that compute count, and collectives on the threads of their workers.


class AnnotatedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The annotated steps in order of their start; empty if the trace has none."""

    numbers: tuple[int, ...]
    intervals: Intervals


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of equal length, in order of start. Times are µs since the first event."""

    names: tuple[str, ...]
    kinds: NDArray[np.str_]  # a Kind; empty for a wait of a stream
    intervals: Intervals
    own: Floats  # µs; on the host without the operators that an operator calls
    launched: Floats  # time of the launch on the host; NaN: not in the trace
    on_stream: NDArray[np.bool_]  # True if its arguments name a stream
    messages: Mapping[int, Message]  # of each communication, by row
    on_device: bool
    lacks_device: bool  # True if the host started work on a GPU and none of it is in the trace
    steps: AnnotatedSteps
    synchronisations: tuple[tuple[str, float], ...]  # calls of the host, with their start
    origin_us: float  # time of the first event by the file's own clock
    base_us: float  # Unix time at which this clock is 0; 0: not in the trace
    dropped: int  # ranges without a time, and entries that are not valid events

    def of(self, kind: Kind) -> Intervals:
        """Return the intervals of one kind."""
        return self.intervals.where(self.kinds == kind)

    def step(self) -> NDArray[np.intp]:
        """Return the index of the step of each event; −1 before the first step.

        It is the last step that had begun when the event was launched, or, if its launch is not in
        the trace, when the event started.
        """
        began = np.where(np.isnan(self.launched), self.intervals.start, self.launched)
        return np.searchsorted(self.steps.intervals.start, began, side="right") - 1


class _LaunchLink(msgspec.Struct, frozen=True, gc=False):
    """The arguments that link an event on a GPU to the call that started it."""

    stream: int | str | None = None
    correlation: int | str | None = None
    collective: str | None = msgspec.field(name="Collective name", default=None)

    @property
    def on_stream(self) -> bool:
        """True if the stream is a number; −1 and an address are no streams."""
        return str(self.stream).isdecimal()


class _Row(msgspec.Struct, frozen=True, gc=False):
    event: TraceEvent
    kind: Kind | None
    launch: TraceEvent | None = None
    on_stream: bool = False


_Ranges = Mapping[str, Sequence[TraceEvent]]  # finished ranges by category, in lower case


def timeline_of(trace: ChromeTrace) -> Timeline:
    """Build the timeline of the events that count; it is empty if there is none."""
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
        synchronisations=tuple(
            (event.name, event.ts - origin)
            for category, events in ranges.items()
            for event in events
            if is_synchronisation(category, event.name)
        ),
        origin_us=origin,
        base_us=trace.base_ns / 1e3,
        dropped=trace.dropped + untimed,
    )


def _finished(events: Iterable[TraceEvent]) -> tuple[_Ranges, int]:
    """Return the ranges with a start and a length, and the number of ranges without."""
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
    """Return the events of the host, without calls of the GPU's runtime."""
    categories = ("user_annotation", "cpu_op", "operator")
    return [event for category in categories for event in ranges.get(category, ())]


def _device_rows(ranges: _Ranges) -> Iterator[_Row]:
    launches: dict[object, TraceEvent] = {}
    for category, events in ranges.items():
        if is_launch(category):
            links = decode_args(events, _LaunchLink)
            launches |= {link.correlation: e for link, e in zip(links, events, strict=True)}
    launches.pop(None, None)
    for category, events in ranges.items():
        if category not in WAITS and device_kind(category, "") is None:
            continue
        for link, event in zip(decode_args(events, _LaunchLink), events, strict=True):
            kind = device_kind(category, event.name, is_collective=link.collective is not None)
            yield _Row(event, kind, launches.get(link.correlation), link.on_stream)


def _stream_rows(ranges: _Ranges) -> Iterator[_Row]:
    """Yield operators that name a stream, such as Triton's launches.

    They run on the host, so they have no kind here. HTA counts them as kernels.
    """
    events = [event for event in _host(ranges) if b'"stream"' in bytes(event.args)]
    for link, event in zip(decode_args(events, _LaunchLink), events, strict=True):
        if link.on_stream:
            yield _Row(event, None, on_stream=True)


def _used_device(ranges: _Ranges, marks: Iterable[TraceEvent]) -> bool:
    """Return whether the host started kernels, graphs or collectives on a GPU, or on an MTIA."""
    started = (event for name, of in ranges.items() if is_launch(name) for event in of)
    return (
        "mtia_runtime" in ranges
        or any("Launch" in event.name for event in started)
        or any(event.name.startswith("nccl:") for event in marks)
    )


def _work_rows(ranges: _Ranges, workers: set[object]) -> Iterator[_Row]:
    """Yield the operators of every thread that does not carry out collectives."""
    work = [event for event in _host(ranges) if is_host_work(event.cat, event.name)]
    busiest = collections.Counter(event.tid for event in work).most_common(1)
    workers -= {tid for tid, _ in busiest}  # older torch puts the range on the caller's thread
    for event in work:
        if event.tid not in workers:
            yield _Row(event, "computation")


def _own_time(events: Sequence[TraceEvent]) -> Floats:
    """Return the µs of each range without the ranges nested in it, for each thread.

    `events` are in order of start, the longest first.
    """
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
