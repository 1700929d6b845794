"""The messages between the driver and a node process: a request, and an outcome."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.gpu import NodeHardware
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, RankResult
from ddp_perf.launch.brought import RankFileName
from ddp_perf.launch.frames import framed, is_framed, packed, unframed, unpacked
from ddp_perf.launch.launcher import Runtime
from ddp_perf.system.capacity import Capacity


class NodeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to every node of a launch, or to describe the nodes."""

    launch: LaunchRequest | None  # None: describe the node
    tier: Tier
    id: str  # of the rendezvous: another one for each launch
    environ: dict[str, str] = {}  # of the ranks, beside the environment of the node
    node_variable: str  # the environment variable with the number of the node


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its software and its hardware, as far as the tier uses it."""

    torch: str | None  # None: it is not installed there
    cuda: str | None
    driver: str | None  # of the GPUs
    accelerator: str  # the model of the GPUs, or of the processor
    gpus: int
    hardware: NodeHardware | None = None  # of its GPUs; None: on the CPU tier


class NodeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a launch on one node: the results of its ranks, or a failure."""

    facts: NodeFacts
    results: tuple[RankResult, ...] = ()  # by rank
    failure: LaunchFailure | None = None
    is_symptom: bool = False  # of the failure: another node failed first
    was_ended: bool = False  # by its engine: the failure is only that
    place: tuple[int, int] | None = None  # if it hung: the least progress of its ranks
    unreachable: str | None = None  # the rendezvous endpoint, if the node does not reach it
    output: dict[RankFileName, bytes] = {}  # what the ranks printed, by file name
    records: dict[RankFileName, bytes] = {}  # flight records, by file name
    profiles: dict[RankFileName, bytes] = {}  # traces, by file name
    runtime: Runtime | None = None  # of a description
    capacity: Capacity | None = None  # of a description: what a driver elsewhere cannot read


def encode_request(request: NodeRequest) -> str:
    """Return the request as one argument of a command."""
    return packed(msgspec.json.encode(request))


def decode_request(text: str) -> NodeRequest:
    return msgspec.json.decode(unpacked(text), type=NodeRequest)


def encode_outcome(outcome: NodeOutcome) -> str:
    """Return the outcome as the last line that a node process prints."""
    return framed(msgspec.json.encode(outcome))


def decode_outcome(output: str) -> NodeOutcome | None:
    """Return the outcome in the output of a node process; None: there is no whole one."""
    for line in reversed(output.splitlines()):
        if is_framed(line):
            try:
                return msgspec.json.decode(unframed(line) or b"", type=NodeOutcome)
            except msgspec.DecodeError:
                return None
    return None


def without_outcome(output: str) -> str:
    """Return the output of a node process without its outcome."""
    return "\n".join(line for line in output.splitlines() if not is_framed(line))
