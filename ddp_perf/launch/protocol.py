"""The protocol between a driver and the servers of its ranks: messages, and frames on two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import time
import zlib
from collections import deque
from multiprocessing.connection import wait
from typing import Annotated, TypeAlias

import msgspec

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, RankResult
from ddp_perf.core.work import CountRequest, StepWork
from ddp_perf.errors import LaunchError
from ddp_perf.launch.interpreter import package_directory
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.node_facts import NodeFacts
from ddp_perf.system.files import UNREADABLE

# The messages.
#
# A side of a duel may have another version of this package, so the two ends compare theirs before
# the first request.


# Raise it with each change of a message that the other end cannot read, or would misread: a field
# that is removed, renamed, has another type, unit or meaning, or is added without a default. A
# field that is added with a default needs no other version: msgspec ignores what it does not know,
# except in a Case, which refuses it.
PROTOCOL = 7


def start_line(
    environ: dict[str, str],
    preloaded: tuple[str, ...],
    *,
    directory: str | None = None,
    parent: int | None = None,
) -> bytes:
    """Return the first line that a server reads: what it needs before it imports anything.

    ``environ`` are variables beside those that its command has, and ``preloaded`` the workloads
    that it imports. ``directory`` is for its files; None: it makes one. ``parent`` is the pid with
    which it ends; None: it ends at SIGTERM instead, and in any case when its input is closed.
    """
    start = {
        "environ": environ,
        "preloaded": preloaded,
        "directory": directory,
        "parent": parent,
    }
    return json.dumps(start).encode() + b"\n"


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of a server."""

    protocol: int
    package: str  # the directory from which it imported ddp_perf
    runtime: Runtime


class NodeLaunch(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """A request for the ranks of a launch that one node has."""

    request: LaunchRequest
    number: int = 0  # of the node in the launch
    # host:port of the first node, as every node reaches it; None: the launch has one node.
    endpoint: str | None = None
    id: str  # that no other launch has


class DescribeRequest(msgspec.Struct, frozen=True, kw_only=True, tag="describe"):
    """A request for the facts of the node."""

    tier: Tier


class EndRequest(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """A request to end the launch that runs: another node has failed."""


Request: TypeAlias = NodeLaunch | CountRequest | DescribeRequest | EndRequest
# Code that is measured can forge a message of its node, so a name in it is that of a rank's file,
# and never a path.
RANK_FILE = re.compile(r"\Arank[0-9]+\.(out|json|json\.gz)\Z")
RankFileName: TypeAlias = Annotated[str, msgspec.Meta(pattern=RANK_FILE.pattern)]


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The answer of a server, with the files that the launch left where its ranks ran."""

    results: tuple[RankResult, ...] = ()  # of a launch: of this node's ranks, by rank
    counted: StepWork | None = None
    facts: NodeFacts | None = None
    failure: LaunchFailure | None = None
    is_symptom: bool = False  # of the failure: another node failed first
    was_ended: bool = False  # by the driver: the failure is only that
    place: tuple[int, int] | None = None  # if ranks hung: their least progress
    unreachable: str | None = None  # the endpoint, if the node does not reach it
    output: dict[RankFileName, bytes] = {}  # what the ranks printed, by file name
    records: dict[RankFileName, bytes] = {}  # flight records, by file name
    profiles: dict[RankFileName, bytes] = {}  # traces, by file name


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a Hello that every version has. Older packages sent a bare Runtime."""

    protocol: int | None = None
    package: str | None = None


def own_hello(runtime: Runtime) -> bytes:
    """Return the first message of this server."""
    hello = Hello(protocol=PROTOCOL, package=str(package_directory()), runtime=runtime)
    return msgspec.json.encode(hello)


def read_hello(data: bytes, package: str) -> Hello:
    """Return the first message of a server, whose package should be in ``package``.

    Raises LaunchError if its protocol has another version, or none, or it is no message at all.
    """
    try:
        return _checked_hello(data, package)
    except UNREADABLE as error:
        raise LaunchError(
            f"the first message of the ranks' server ({package}) is none of ddp_perf: {error}"
        ) from None


def _checked_hello(data: bytes, package: str) -> Hello:
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


_MARK = b"ddp-perf-message "
_MOST = 2**30  # bytes of a message: code that is measured can print one that unpacks to more
_FAST = 1  # zlib's level: traces are packed already
_CHUNK = 2**16
_NOISE = 20  # lines that are kept
_BEAT_S = 0.5


def framed(data: bytes) -> bytes:
    """Return the message as one line, without its end."""
    return _MARK + base64.b64encode(zlib.compress(data, _FAST))


def unframed(line: bytes) -> bytes | None:
    """Return the message in a line, maybe after other text; None: there is no whole one."""
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(text.strip(), validate=True), _MOST)
    except (ValueError, zlib.error):
        return None
    return data if stream.eof else None


class BrokenMessageError(EOFError):
    """A message that cannot be read: something else was printed within it, or it is too large."""


class Channel:
    """One end of the pipes between a driver and a server.

    ``beats`` counts the signs of life of the other end: its messages, of which an empty one is
    nothing else, and each chunk of a long one.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self.beats = 0
        self.noise: deque[bytes] = deque(maxlen=_NOISE)  # what others print there
        self._reading, self._writing = reading, writing
        self._rest = bytearray()  # a line without its end
        self._messages: deque[bytes] = deque()
        self._beat_at = 0.0

    def fileno(self) -> int:
        """Return the descriptor that is ready when something has arrived."""
        return self._reading

    @property
    def pending(self) -> bool:
        """True if a message has arrived already."""
        return bool(self._messages)

    def send(self, data: bytes) -> None:
        """Send a message. Raises BrokenPipeError if the other end is closed."""
        self.send_line(framed(data) + b"\n")

    def send_line(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            left = left[os.write(self._writing, left) :]  # a pipe may take a part

    def beat(self) -> None:
        """Give a sign of life, unless one was given just before."""
        if time.monotonic() - self._beat_at >= _BEAT_S:
            with contextlib.suppress(BrokenPipeError):  # the reader of requests notices it, too
                self.send(b"")
            self._beat_at = time.monotonic()

    def receive(self, timeout_s: float | None = None) -> bytes | None:
        """Return the next message, or None if none arrives in time.

        Raises EOFError if the other end is closed, and BrokenMessageError.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._messages:
            left = None if end is None else max(end - time.monotonic(), 0)
            if not wait([self._reading], left):
                return None
            self.read()
            if end is not None and not self._messages and time.monotonic() > end:
                return None  # others may print without a pause
        return self._messages.popleft()

    def read(self) -> None:
        """Read what has arrived, or wait for it. Raises EOFError."""
        chunk = os.read(self._reading, _CHUNK)
        if not chunk:
            raise EOFError
        self._rest += chunk
        if b"\n" not in chunk:  # an answer with traces has many chunks
            if _MARK in self._rest[:_CHUNK]:
                self.beats += 1
            elif len(self._rest) > _CHUNK:
                del self._rest[: -len(_MARK)]
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            data = unframed(bytes(line))
            if data is None and _MARK in line:  # both ends would wait for each other
                raise BrokenMessageError
            if data is None:
                self.noise.append(bytes(line))
                continue
            self.beats += 1
            if data:
                self._messages.append(data)

    def printed(self) -> list[str]:
        """Return the last lines that were no messages."""
        lines = [*self.noise, *filter(None, [bytes(self._rest)])]
        return [line.decode("utf-8", "replace") for line in lines]

    def close(self) -> None:
        """Close both descriptors. A second call does nothing."""
        for descriptor in (self._reading, self._writing):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._reading = self._writing = -1


# The patience of a driver with a server.


# A beat comes at least once a second, but a busy machine may delay it.
_LEAST_PATIENCE_S, MOST_PATIENCE_S = 5.0, 60.0


def patience_with(case: Case) -> float:
    """Return the seconds without a beat after which a server with this case is given up."""
    return min(max(case.schedule.step_deadline_s, _LEAST_PATIENCE_S), MOST_PATIENCE_S)
