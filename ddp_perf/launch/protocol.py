"""The protocol between a driver and what starts its ranks: messages, frames, signs of life."""

from __future__ import annotations

import base64
import ctypes
import mmap
import os
import zlib
from collections.abc import Callable

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.work import RankCounted
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import RankFileName, Runtime, package_directory

# The protocol between a driver and what starts its ranks: its version, and its messages.
#
# A side of a duel may have another version of this package, so the two ends compare theirs before
# the first request. The other messages, LaunchRequest, CountRequest and their outcomes, are in
# ``core/``.


# Raise it with each change of a message that the other end cannot read, or would misread: a field
# that is removed, renamed, has another type, unit or meaning, or is added without a default; and
# with each change of the arguments of launch/server.py. A field that is added with a default needs
# no other version: msgspec ignores what it does not know.
PROTOCOL = 4


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a server, or of a relay: the driver sends nothing before."""

    protocol: int
    package: str  # the directory from which it imported ddp_perf
    runtime: Runtime | None = None  # None: a relay, which does not import torch


class DescribeRequest(msgspec.Struct, frozen=True, kw_only=True, tag="describe"):
    """A request to a relay for the versions that ranks of the case run on; None: of any case."""

    case: Case | None = None


class RelayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a relay, with the files that the launch left where its ranks ran."""

    outcome: LaunchResult | LaunchFailure | RankCounted | None = None
    runtime: Runtime | None = None  # of a DescribeRequest
    refusal: str | None = None  # a LaunchError: no rank could be started
    output: dict[RankFileName, bytes] = {}  # what the ranks printed, by file name
    records: dict[RankFileName, bytes] = {}  # flight records, by file name
    profiles: dict[RankFileName, bytes] = {}  # traces, by file name


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a Hello that every version has. Older packages sent a bare Runtime."""

    protocol: int | None = None
    package: str | None = None


def own_hello(runtime: Runtime | None = None) -> bytes:
    """Return the first message of this end."""
    hello = Hello(protocol=PROTOCOL, package=str(package_directory()), runtime=runtime)
    return msgspec.json.encode(hello)


def read_hello(data: bytes, package: str) -> Hello:
    """Return the first message of the other end, whose package should be in ``package``.

    Raises LaunchError if its protocol has another version, or none.
    """
    theirs = msgspec.json.decode(data, type=_Version)
    if theirs.protocol != PROTOCOL:
        version = "none" if theirs.protocol is None else f"version {theirs.protocol}"
        raise LaunchError(
            f"this ddp_perf ({package_directory()}) starts ranks by version {PROTOCOL} of its"
            f" protocol, and the ddp_perf of the ranks ({theirs.package or package}) has {version}"
            f"\nremedy: {_remedy(theirs.protocol)}"
        )
    return msgspec.json.decode(data, type=Hello)


def _remedy(protocol: int | None) -> str:
    if protocol is None or protocol < PROTOCOL:
        return "install this version of ddp_perf for the ranks, too, or remove the older one there"
    return "run the newer ddp_perf, that of the ranks, or install this version there"


# Messages as marked lines, so that other programs may print on the same stream.


_MARK = "ddp-perf-outcome "
_MOST = 2**30  # bytes of a message: code that is measured can print one that unpacks to more


def framed(data: bytes) -> str:
    """Return the message as one line, without its end."""
    return _MARK + packed(data)


def is_framed(line: str) -> bool:
    """Return whether a message begins in the line."""
    return _MARK in line


def unframed(line: str) -> bytes | None:
    """Return the message in a line, maybe after other text; None: there is no whole one."""
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        return unpacked(text.strip())
    except (ValueError, zlib.error):
        return None


def packed(data: bytes) -> str:
    """Return the data as a word that every shell leaves as it is."""
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def unpacked(text: str) -> bytes:
    """Return the data. Raises ValueError or zlib.error if the text is none, or is too large."""
    stream = zlib.decompressobj()
    data = stream.decompress(base64.b64decode(text, validate=True), _MOST)
    if not stream.eof:
        raise ValueError("the message is cut, or too large")
    return data


# A heartbeat of a forkserver, in memory that it shares with its driver.


_SIZE = ctypes.sizeof(ctypes.c_uint64)
# A beat comes at least once a second, but a busy machine may delay it.
_LEAST_PATIENCE_S, MOST_PATIENCE_S = 5.0, 60.0
_READINGS = 5  # that must show the same counter before the server counts as silent


class Pulse:
    """A counter that the server increases and the driver reads. A beat needs no system call."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._count = ctypes.c_uint64.from_buffer(self._memory)

    def beat(self) -> None:
        self._count.value += 1

    def goes_on_until(self, answered: Callable[[float], bool], patience_s: float) -> bool:
        """Wait for ``answered``; return False if there was no beat for ``patience_s`` seconds."""
        return beats_until(answered, lambda: self._count.value, patience_s)


def beats_until(
    answered: Callable[[float], bool], beats: Callable[[], int], patience_s: float
) -> bool:
    """Wait for ``answered``; return False if ``beats`` was the same for ``patience_s`` seconds.

    A silence is noticed at most a fifth of that later. ``answered`` takes the number of seconds
    that it may wait. Readings are counted, not seconds, so a machine that was suspended does not
    lose its server.
    """
    before, silent = beats(), 0
    while not answered(patience_s / _READINGS):
        now = beats()
        silent = silent + 1 if now == before else 0
        before = now
        if silent == _READINGS:
            return False
    return True


def patience_with(case: Case) -> float:
    """Return the seconds without a beat after which a server with this case is given up."""
    return min(max(case.schedule.step_deadline_s, _LEAST_PATIENCE_S), MOST_PATIENCE_S)


def open_pulse_memory() -> int:
    """Return a descriptor of memory for a Pulse. The last process that closes it frees it."""
    descriptor = os.memfd_create("ddp-perf-pulse")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
