"""Reader of torch.profiler's files, the messages of collectives, and the values of an analysis."""

from __future__ import annotations

import bisect
import collections
import contextlib
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ddp_perf.errors import TraceError
from ddp_perf.system.files import UNREADABLE, replace_file

# Reader of torch.profiler's files: Chrome traces as Kineto writes them, plain or gzipped.
#
# Events keep their order in the file. Kineto writes values that are not valid JSON (NaN, inf, bytes
# that are not UTF-8): they are repaired. An entry that is not a valid event is dropped and counted.


MERGED_RANKS = "mergedRanks"  # marks a file that `traces.merge` made
_GZIP = b"\x1f\x8b"
# A bomb unzips to a thousand times its size; the recorded traces to 13 to 23 times theirs.
_RATIO, _ALWAYS_READ = 100, 2**26
_REMEDY = "export it again with torch.profiler's export_chrome_trace"
# A complete string, which is kept, or a bare word that is not a number in JSON.
_NO_NUMBER = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[-+]?\b(?:NaN|nan|Infinity|Inf|inf)\b')
_CONTROL = re.compile(r"[\x00-\x1f]")

T = TypeVar("T")


class TraceEvent(msgspec.Struct, frozen=True, gc=False):
    """One event. Times in µs, NaN if missing; a finished range (``ph`` X) has both times."""

    name: str = ""
    ph: str = ""
    cat: str | None = None
    ts: float = math.nan
    dur: float = math.nan
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")  # decoded for the few events that need it


class DistributedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The process group, as torch.distributed reported it to the profiler."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class DeviceProperties(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that was visible to the process."""

    id: int | None = None
    name: str | None = None


class ChromeTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file of one process."""

    events: tuple[TraceEvent, ...]
    dropped: int  # entries that are not valid events
    distributed: DistributedInfo
    devices: tuple[DeviceProperties, ...]
    base_ns: float  # Unix time at which ``ts`` is 0
    host: str | None


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """The undecoded parts of the header: an invalid part must not make the others unreadable."""

    distributed: msgspec.Raw = msgspec.field(name="distributedInfo", default=msgspec.Raw(b"{}"))
    devices: msgspec.Raw = msgspec.field(name="deviceProperties", default=msgspec.Raw(b"[]"))
    base_ns: msgspec.Raw = msgspec.field(name="baseTimeNanoseconds", default=msgspec.Raw(b"0"))
    host: msgspec.Raw = msgspec.field(name="host_name", default=msgspec.Raw(b"null"))
    merged_ranks: msgspec.Raw = msgspec.field(name=MERGED_RANKS, default=msgspec.Raw(b"[]"))


class _File(_Header, frozen=True, kw_only=True):
    events: list[TraceEvent] = msgspec.field(name="traceEvents")


class _RawFile(_Header, frozen=True, kw_only=True):
    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")


_FILE = msgspec.json.Decoder(_File, strict=False)  # a time may be a string
_EVENT = msgspec.json.Decoder(TraceEvent, strict=False)


def read_chrome_trace(path: Path) -> ChromeTrace:
    """Read one file. Raises TraceError with the file, the fault and the remedy."""
    text = _text(path)
    with _refusing(path):
        file, events, dropped = _decoded(text)
    if _part(file.merged_ranks, list[int], []):
        raise TraceError(
            f"{path}: contains several ranks, for Perfetto; give the file of each rank"
        )
    return ChromeTrace(
        events=tuple(events),
        dropped=dropped,
        distributed=_part(file.distributed, DistributedInfo, DistributedInfo()),
        devices=_part(file.devices, tuple[DeviceProperties, ...], ()),
        base_ns=_part(file.base_ns, float, 0.0),
        host=_part(file.host, str | None, None),
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read the whole file, and repair it if it is not valid JSON. Raises TraceError."""
    text = _text(path)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        with _refusing(path):
            return msgspec.json.decode(_repaired(text), type=dict[str, Any])


def decode_args(events: Sequence[TraceEvent], kind: type[T]) -> list[T]:
    """Decode the arguments of each event. Invalid arguments become ``kind()``."""
    raws = [event.args for event in events]
    try:  # all at once: one call for each event takes three times as long
        return msgspec.json.decode(b"[" + b",".join(raws) + b"]", type=list[kind])  # type: ignore[valid-type]
    except UNREADABLE:
        return [_part(raw, kind, kind()) for raw in raws]


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn decoding errors into a TraceError with the file and the remedy."""
    try:
        yield
    except msgspec.ValidationError:
        raise TraceError(f"{path}: has no traceEvents, so it is not a trace; {_REMEDY}") from None
    except UNREADABLE as error:
        raise TraceError(f"{path}: is cut short, or is not JSON ({error}); {_REMEDY}") from None


def _text(path: Path) -> bytes:
    """Return the bytes of the file, unzipped if they are gzipped, whatever its name is."""
    try:
        data = path.read_bytes()
        return _unzipped(path, data) if data.startswith(_GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: is cut short or damaged ({error}); copy it again") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}; check its name") from None


def _unzipped(path: Path, data: bytes) -> bytes:
    """Return the unzipped file. Raises TraceError for one that would fill the memory."""
    most = max(_ALWAYS_READ, _RATIO * len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        text = file.read(most + 1)
    if len(text) > most:
        raise TraceError(
            f"{path}: unzips to more than {_RATIO} times its size, which no trace does; check where"
            " it is from"
        )
    return text


def _decoded(text: bytes) -> tuple[_Header, list[TraceEvent], int]:
    """Return the file, its events, and the number of entries that are not valid events.

    Events are decoded all at once, or one by one if one is invalid. Raises DecodeError.
    """
    if text.lstrip()[:1] == b"[":  # the array form of the format has only events
        text = b'{"traceEvents":' + text + b"}"
    try:
        file = _FILE.decode(text)
    except UNREADABLE:
        return _one_by_one(_repaired(text))
    return file, file.events, 0


def _one_by_one(text: bytes) -> tuple[_Header, list[TraceEvent], int]:
    file = msgspec.json.decode(text, type=_RawFile)
    events = []
    for entry in file.events:
        with contextlib.suppress(msgspec.ValidationError):
            events.append(_EVENT.decode(entry))
    return file, events, len(file.events) - len(events)


def _part(raw: msgspec.Raw, kind: Any, default: T) -> T:
    try:
        part: T = msgspec.json.decode(raw, type=kind, strict=False)
    except UNREADABLE:
        return default
    return part


def _repaired(text: bytes) -> bytes:
    """Return the text as JSON: null replaces NaN and infinities."""
    readable = text.decode(errors="replace")
    return _NO_NUMBER.sub(
        lambda found: _CONTROL.sub(" ", found[1]) if found[1] else "null", readable
    ).encode()


# The values of an analysis of traces: times in seconds, shares from 0 to 1.


SCHEMA_VERSION = 1

CallKind = Literal["kernel", "collective", "copy", "fill", "synchronisation"]


class Message(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The data that one collective sends. None: the trace does not have it."""

    kind: str  # "all_reduce", "broadcast", …; a kernel's name if the trace has no kind
    dtype: str | None = None
    bytes: int | None = None  # of the larger of input and output, on this rank
    group: str | None = None  # its description, or its name
    group_ranks: str | None = None  # "[0, 1]", as in the trace
    group_size: int | None = None


class TimeSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds of one rank by kind of work."""

    window_s: float  # computation + exposed communication + exposed memory + idle
    computation_s: float
    communication_s: float  # all of it, hidden or not
    exposed_communication_s: float
    memory_s: float
    exposed_memory_s: float
    idle_s: float
    overlap: (
        float | None
    )  # overlap ratio: share of the communication that computation hides; None: no communication


class HtaSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of HolisticTraceAnalysis 0.5 for the same trace, from the events it selects."""

    computation_s: float
    idle_s: float
    other_s: float  # busy, and not computing
    overlap: float | None


class StepSplit(msgspec.Struct, frozen=True, kw_only=True):
    """One annotated step of one rank. All work that it launched belongs to it."""

    number: int
    step_s: float  # of the host's annotation
    computation_s: float
    communication_s: float
    exposed_communication_s: float


class RankSkew(msgspec.Struct, frozen=True, kw_only=True):
    """The delay of one rank in the collectives that it shares with others."""

    rank: int
    collectives: int
    last: int  # number of them in which it was the last rank
    behind_s: float  # median delay after the first rank


class RankComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of the ranks over the collectives that could be matched between them."""

    matched: int
    unmatched: int  # calls of one rank without a known counterpart
    one_clock: bool  # False: the files' clocks differ, so lengths are compared
    hosts: int = 1  # of the files; several have several clocks
    median_skew_s: float | None  # last start − first start; None: nothing matched
    largest_skew_s: float | None
    slowest: int | None  # the rank that was the last in most of them; None: no such rank
    ranks: tuple[RankSkew, ...]


class KernelTotal(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one kernel or operator, over all ranks."""

    name: str
    calls: int
    total_s: float  # of an operator: without the operators that it calls


class CollectiveTotal(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives of one kind, type, size and group, over all ranks."""

    message: Message
    calls: int
    total_s: float
    exposed_s: float  # time in which that rank did not compute


class KernelCount(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """The number of calls of one kernel, copy, fill or synchronising call, in each step."""

    kind: CallKind
    name: str
    calls: tuple[int, ...]  # one number without annotated steps: of the whole trace


class KernelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one rank's GPU in each annotated step, and the calls in which the host waits.

    Work belongs to the step that launched it; a waiting call to the step in which it begins.
    """

    steps: tuple[int, ...]  # numbers; empty: none is annotated
    counts: tuple[KernelCount, ...]  # sorted


class RankTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of one rank's file."""

    file: str
    rank: int
    world_size: int | None  # None: not in the trace
    backend: str | None
    host: str | None
    device: str | None  # the GPU's name, or "CPU" if the host computes
    split: TimeSplit
    hta: HtaSplit | None  # None without a GPU
    steps: tuple[StepSplit, ...]
    dropped: int  # entries that are not usable
    counts: KernelCounts | None = None  # None without a GPU


class TraceAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """The analysis of all files of one command, defined in `split`, `steps` and `skew`."""

    schema_version: int = SCHEMA_VERSION
    ranks: tuple[RankTrace, ...]  # by rank
    kernels: tuple[KernelTotal, ...]
    collectives: tuple[CollectiveTotal, ...]
    comparison: RankComparison | None  # None: one rank


# The messages of collectives: kind, type, bytes and group, as far as the trace has them.


_BYTES = {
    **dict.fromkeys(("double", "float64", "long", "int64", "longint"), 8),
    **dict.fromkeys(("float", "float32", "int", "int32"), 4),
    **dict.fromkeys(("half", "float16", "bfloat16", "short", "int16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
}
_TORCH_TYPES = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "byte": "uint8",
    "unsigned char": "uint8",
}
_KERNEL_KIND = re.compile(r"Kernel_([A-Za-z]+)_")
_RANGE = re.compile(r"(?:nccl|gloo|mpi|ucc):_?(\w+)|record_param_comms")


class _Args(msgspec.Struct, frozen=True, gc=False):
    name: Any = msgspec.field(name="Collective name", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    description: Any = msgspec.field(name="Process Group Description", default=None)
    ranks: Any = msgspec.field(name="Process Group Ranks", default=None)
    size: Any = msgspec.field(name="Group size", default=None)
    shapes: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)


def messages_of(
    communications: Mapping[int, tuple[TraceEvent, TraceEvent | None]],
    marks: Iterable[TraceEvent],
) -> dict[int, Message]:
    """Return the message of each communication, by the same number.

    Each communication is an event and its launch. A property that the event itself does not have
    is taken from the host's ranges around its launch.
    """
    ranges = _Ranges(event for event in marks if _RANGE.fullmatch(event.name))
    return {
        number: _message([event, *(ranges.around(launch) if launch else ())])
        for number, (event, launch) in communications.items()
    }


def collective_kind(name: str) -> str:
    """Return one name for all spellings: ``AllReduce``, ``_allreduce_base`` → ``all_reduce``."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_")
    name = re.sub(r"(_coalesced|_base|_into_tensor|_tensor|_single|_async)+$", "", name)
    name = re.sub(r"^all_?(reduce|gather|to_?all)v?", r"all_\1", name).replace("toall", "to_all")
    return re.sub(r"^reduce_?scatterv?", "reduce_scatter", name)


class _Ranges:
    """Ranges of collectives on the host, by thread; a range is found by a time within it."""

    def __init__(self, events: Iterable[TraceEvent]) -> None:
        self._by_thread: dict[object, list[TraceEvent]] = collections.defaultdict(list)
        for event in sorted(events, key=lambda event: (event.ts, -event.dur)):
            self._by_thread[event.tid].append(event)

    def around(self, launch: TraceEvent) -> list[TraceEvent]:
        """Return the ranges around a launch, innermost first; c10d has at most three levels."""
        events = self._by_thread.get(launch.tid, [])
        place = bisect.bisect_right(events, launch.ts, key=lambda event: event.ts)
        near = reversed(events[max(place - 4, 0) : place])
        return [event for event in near if launch.ts <= event.ts + event.dur]


def _message(events: list[TraceEvent]) -> Message:
    """Return the message of these events. For each property the first event that has it decides."""
    args = decode_args(events, _Args)
    dtype = _first(_dtype(one) for one in args)
    elements = _first(_elements(one) for one in args)
    group = _first(_text_value(one.description) or _text_value(one.group) for one in args)
    size = _first(one.size for one in args)
    return Message(
        kind=_kind([event.name for event in events], [one.name for one in args]),
        dtype=dtype,
        bytes=elements * _BYTES[dtype] if elements is not None and dtype else None,
        group=group,
        group_ranks=_first(_text_value(one.ranks) for one in args),
        group_size=size if isinstance(size, int) else None,
    )


def _text_value(value: object) -> str | None:
    """Return a text, or None if it is no text, empty, or the description "undefined"."""
    return value if isinstance(value, str) and value not in ("", "undefined") else None


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _kind(names: list[str], arguments: list[object]) -> str:
    """Return the kind of a collective by its arguments, a range's name, or the kernel's name.

    The kernel of an all-to-all is named send and receive only.
    """
    ranges = [found[1] for name in names if (found := _RANGE.fullmatch(name)) and found[1]]
    kernel = _KERNEL_KIND.search(names[0])
    candidates = [*(name for name in arguments if isinstance(name, str)), *ranges]
    if kernel:
        candidates.append(kernel[1])
    return collective_kind(candidates[0]) if candidates else names[0].partition("(")[0]


def _dtype(args: _Args) -> str | None:
    """Return the type by torch's name, or None if it is not one type, as for a list of tensors."""
    types = args.types if isinstance(args.types, list) else []
    for name in (args.dtype, *types[:1]):
        if isinstance(name, str):
            name = name.lower().removeprefix("c10::")
            name = _TORCH_TYPES.get(name, name)
            if name in _BYTES:
                return name
    return None


def _elements(args: _Args) -> int | None:
    """Return the elements of the larger of input and output.

    The shapes of the call are used if it has no counts.
    """
    counts = [count for count in (args.sent, args.received) if isinstance(count, int)]
    shapes = args.shapes if isinstance(args.shapes, list) else []
    counts = counts or [count for shape in shapes if (count := _size(shape)) is not None]
    return max(counts, default=None)


def _size(shape: object) -> int | None:
    """Return the number of elements of one tensor, or of a list of tensors."""
    if not isinstance(shape, list) or not shape:
        return None
    if all(isinstance(length, int) for length in shape):
        return math.prod(shape)
    parts = [_size(part) for part in shape]
    return None if None in parts else sum(part for part in parts if part is not None)


# The merge of all ranks' traces into one file for a viewer (ui.perfetto.dev).


_PIDS = 10_000_000  # more than the largest process id of Linux
_FLOWS = 2**40  # more than any flow's id; with 2^13 ranks still exact in JavaScript


def merge_traces(files: Mapping[int, Path], target: Path) -> None:
    """Write `target` (.json.gz) from the ranks' files. Raises TraceError and OSError.

    Every rank has its own processes, threads and flows, and its number before each process's name.
    Its times are moved by the difference between its clock's base and the first rank's. Clocks of
    several hosts are not one clock, so each process's name then has its host.
    """
    traces = {rank: read_json(path) for rank, path in files.items()}
    first = next(iter(traces.values()))
    several = len({trace.get("host_name") for trace in traces.values()}) > 1
    events: list[dict[str, Any]] = []
    for rank, trace in traces.items():
        shift_us = (_base_ns(trace) - _base_ns(first)) / 1e3
        name = f"rank {rank}" + (f" on {trace.get('host_name')}, by its clock" if several else "")
        events += _of_rank(rank, name, trace["traceEvents"], shift_us)
    merged = {**first, MERGED_RANKS: list(traces), "traceEvents": events}
    merged.pop("distributedInfo", None)  # one rank's
    replace_file(target, gzip.compress(msgspec.json.encode(merged)))


def _base_ns(trace: Mapping[str, Any]) -> int:
    return int(trace.get("baseTimeNanoseconds", 0))


def _of_rank(
    rank: int, name: str, events: list[dict[str, Any]], shift_us: float
) -> Iterator[dict[str, Any]]:
    for event in events:
        moved = {**event, "pid": _pid(rank, event.get("pid"))}
        if "ts" in event:
            moved["ts"] = event["ts"] + shift_us
        if event.get("ph") in ("s", "t", "f") and isinstance(event.get("id"), int):
            moved["id"] = rank * _FLOWS + event["id"]
        if event.get("name") == "process_name":
            moved["args"] = {"name": f"{name}: {event['args']['name']}"}
        elif event.get("name") == "process_sort_index":
            moved["args"] = {"sort_index": rank}
        yield moved


def _pid(rank: int, pid: object) -> int | str:
    return (rank + 1) * _PIDS + pid if isinstance(pid, int) else f"rank {rank}: {pid}"
