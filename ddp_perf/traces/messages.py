"""The messages of collectives: kind, type, bytes and group, as far as the trace has them."""

from __future__ import annotations

import bisect
import collections
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ddp_perf.traces.chrome import TraceEvent, decode_args
from ddp_perf.traces.values import Message

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

T = TypeVar("T")


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
    group = _first(_text(one.description) or _text(one.group) for one in args)
    size = _first(one.size for one in args)
    return Message(
        kind=_kind([event.name for event in events], [one.name for one in args]),
        dtype=dtype,
        bytes=elements * _BYTES[dtype] if elements is not None and dtype else None,
        group=group,
        group_ranks=_first(_text(one.ranks) for one in args),
        group_size=size if isinstance(size, int) else None,
    )


def _text(value: object) -> str | None:
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
