"""Files of torch.profiler: Chrome traces as Kineto writes them, plain or gzipped.

Event by event as they stand in the file. What JSON does not know but Kineto writes (NaN, inf,
bytes that are no UTF-8) is mended; an event that is none is dropped, and counted.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ddp_perf.errors import TraceError

MERGED_RANKS = "mergedRanks"  # marks a file that `traces.merge` made
_GZIP = b"\x1f\x8b"
_REMEDY = "export it anew with torch.profiler's export_chrome_trace"
# A whole string, which stays as it is, or a bare word that JSON has no number for.
_NO_NUMBER = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[-+]?\b(?:NaN|nan|Infinity|Inf|inf)\b')
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)  # msgspec looks at a text when it uses it
_CONTROL = re.compile(r"[\x00-\x1f]")

T = TypeVar("T")


class TraceEvent(msgspec.Struct, frozen=True, gc=False):
    """One event. Times in µs, NaN where there is none; a finished range (``ph`` X) has both."""

    name: str = ""
    ph: str = ""
    cat: str | None = None
    ts: float = math.nan
    dur: float = math.nan
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")  # decoded for the few events that need it


class DistributedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What torch.distributed told the profiler."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class DeviceProperties(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the process saw."""

    id: int | None = None
    name: str | None = None


class ChromeTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one process."""

    events: tuple[TraceEvent, ...]
    dropped: int  # entries that are no event
    distributed: DistributedInfo
    devices: tuple[DeviceProperties, ...]
    base_ns: float  # Unix time that ``ts`` counts from
    host: str | None


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """Each part by itself: one that is not as expected must not cost the others."""

    distributed: msgspec.Raw = msgspec.field(name="distributedInfo", default=msgspec.Raw(b"{}"))
    devices: msgspec.Raw = msgspec.field(name="deviceProperties", default=msgspec.Raw(b"[]"))
    base_ns: msgspec.Raw = msgspec.field(name="baseTimeNanoseconds", default=msgspec.Raw(b"0"))
    host: msgspec.Raw = msgspec.field(name="host_name", default=msgspec.Raw(b"null"))
    merged_ranks: msgspec.Raw = msgspec.field(name=MERGED_RANKS, default=msgspec.Raw(b"[]"))


class _File(_Header, frozen=True, kw_only=True):
    events: list[TraceEvent] = msgspec.field(name="traceEvents")


class _RawFile(_Header, frozen=True, kw_only=True):
    events: list[msgspec.Raw] = msgspec.field(name="traceEvents")


_FILE = msgspec.json.Decoder(_File, strict=False)  # a time written as a string is one
_EVENT = msgspec.json.Decoder(TraceEvent, strict=False)


def read_chrome_trace(path: Path) -> ChromeTrace:
    """The events of one file. Raises TraceError naming the file, the fault and the remedy."""
    text = _text(path)
    with _refusing(path):
        file, events, dropped = _decoded(text)
    if _part(file.merged_ranks, list[int], []):
        raise TraceError(f"{path}: holds several ranks, for Perfetto; name the files of each rank")
    return ChromeTrace(
        events=tuple(events),
        dropped=dropped,
        distributed=_part(file.distributed, DistributedInfo, DistributedInfo()),
        devices=_part(file.devices, tuple[DeviceProperties, ...], ()),
        base_ns=_part(file.base_ns, float, 0.0),
        host=_part(file.host, str | None, None),
    )


def read_json(path: Path) -> dict[str, Any]:
    """The whole file as it is, mended where it is no JSON. Raises TraceError."""
    text = _text(path)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except _UNREADABLE:
        with _refusing(path):
            return msgspec.json.decode(_mended(text), type=dict[str, Any])


def decode_args(events: Sequence[TraceEvent], kind: type[T]) -> list[T]:
    """The arguments of each event; where they are of no expected form, those of ``kind()``."""
    raws = [event.args for event in events]
    try:  # at once: a call for each takes three times as long
        return msgspec.json.decode(b"[" + b",".join(raws) + b"]", type=list[kind])  # type: ignore[valid-type]
    except _UNREADABLE:
        return [_part(raw, kind, kind()) for raw in raws]


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """What cannot be decoded, even mended, is told with its file and the remedy."""
    try:
        yield
    except msgspec.ValidationError:
        raise TraceError(f"{path}: no traceEvents, so no trace; {_REMEDY}") from None
    except msgspec.DecodeError as error:
        raise TraceError(f"{path}: cut short, or no JSON ({error}); {_REMEDY}") from None


def _text(path: Path) -> bytes:
    """The bytes of the file, unzipped whatever its name says."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: cut short, or damaged ({error}); copy it anew") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}; check its name") from None


def _decoded(text: bytes) -> tuple[_Header, list[TraceEvent], int]:
    """The file, its events, and how many entries are none.

    All at once; one by one where an event is not as it should be. Raises DecodeError.
    """
    if text.lstrip()[:1] == b"[":  # the array form of the format: events and nothing else
        text = b'{"traceEvents":' + text + b"}"
    try:
        file = _FILE.decode(text)
    except _UNREADABLE:
        return _one_by_one(_mended(text))
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
    except _UNREADABLE:
        return default
    return part


def _mended(text: bytes) -> bytes:
    """As JSON, with null for what it has no number for."""
    readable = text.decode(errors="replace")
    return _NO_NUMBER.sub(
        lambda found: _CONTROL.sub(" ", found[1]) if found[1] else "null", readable
    ).encode()
