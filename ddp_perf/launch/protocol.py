"""The protocol between a driver and what starts its ranks: its version, and its messages.

A side of a duel may have another version of this package, so the two ends compare theirs before
the first request. The other messages, LaunchRequest, CountRequest and their outcomes, are in
``core/``.
"""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import LaunchFailure, LaunchResult
from ddp_perf.core.work import RankCounted
from ddp_perf.errors import LaunchError
from ddp_perf.launch.brought import RankFileName
from ddp_perf.launch.environment import package_directory
from ddp_perf.launch.launcher import Runtime

# Raise it with each change of a message that the other end cannot read, or would misread: a field
# that is removed, renamed, has another type, unit or meaning, or is added without a default; and
# with each change of the arguments of launch/server.py. A field that is added with a default needs
# no other version: msgspec ignores what it does not know.
PROTOCOL = 3


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
