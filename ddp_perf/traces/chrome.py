"""Reader of torch.profiler's files: Chrome traces as Kineto writes them, plain or gzipped.

Events keep their order in the file. Kineto writes values that are not valid JSON (NaN, inf, bytes
that are not UTF-8): they are repaired. An entry that is not a valid event is dropped and counted.
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
_REMEDY = "export it again with torch.profiler's export_chrome_trace"
# A complete string, which is kept, or a bare word that is not a number in JSON.
_NO_NUMBER = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[-+]?\b(?:NaN|nan|Infinity|Inf|inf)\b')
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)  # msgspec checks UTF-8 when it uses a text
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
    except _UNREADABLE:
        with _refusing(path):
            return msgspec.json.decode(_repaired(text), type=dict[str, Any])


def decode_args(events: Sequence[TraceEvent], kind: type[T]) -> list[T]:
    """Decode the arguments of each event. Invalid arguments become ``kind()``."""
    raws = [event.args for event in events]
    try:  # all at once: one call for each event takes three times as long
        return msgspec.json.decode(b"[" + b",".join(raws) + b"]", type=list[kind])  # type: ignore[valid-type]
    except _UNREADABLE:
        return [_part(raw, kind, kind()) for raw in raws]


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn decoding errors into a TraceError with the file and the remedy."""
    try:
        yield
    except msgspec.ValidationError:
        raise TraceError(f"{path}: has no traceEvents, so it is not a trace; {_REMEDY}") from None
    except msgspec.DecodeError as error:
        raise TraceError(f"{path}: is cut short, or is not JSON ({error}); {_REMEDY}") from None


def _text(path: Path) -> bytes:
    """Return the bytes of the file, unzipped if they are gzipped, whatever its name is."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(_GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: is cut short or damaged ({error}); copy it again") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}; check its name") from None


def _decoded(text: bytes) -> tuple[_Header, list[TraceEvent], int]:
    """Return the file, its events, and the number of entries that are not valid events.

    Events are decoded all at once, or one by one if one is invalid. Raises DecodeError.
    """
    if text.lstrip()[:1] == b"[":  # the array form of the format has only events
        text = b'{"traceEvents":' + text + b"}"
    try:
        file = _FILE.decode(text)
    except _UNREADABLE:
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
    except _UNREADABLE:
        return default
    return part


def _repaired(text: bytes) -> bytes:
    """Return the text as JSON: null replaces NaN and infinities."""
    readable = text.decode(errors="replace")
    return _NO_NUMBER.sub(
        lambda found: _CONTROL.sub(" ", found[1]) if found[1] else "null", readable
    ).encode()
