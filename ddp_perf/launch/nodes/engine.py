"""The interface of an engine, and its messages: facts of a node, request, outcome, rendezvous."""

from __future__ import annotations

import errno
import importlib.util
import runpy
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ddp_perf.core.case import Tier
from ddp_perf.core.gpu import NodeHardware
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, RankResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.launcher import RankFileName, Runtime
from ddp_perf.launch.protocol import framed, is_framed, packed, unframed, unpacked
from ddp_perf.launch.supervisor.rank import REAPED_S
from ddp_perf.system.capacity import Capacity
from ddp_perf.system.gpu.gpus import NO_GPUS, find_gpus, hardware_of
from ddp_perf.system.host.host import cpu_name, host_name
from ddp_perf.system.host.network import address_towards, is_loopback, rdma_networks

# The messages between the driver and a node process: a request, and an outcome.


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


# The interface of an engine: torchrun on hosts, Slurm, or Kubernetes.


class NodeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the node process on one node."""

    node: str  # its name, as the engine's user knows it
    output: str  # all that the process printed; its last line may be the outcome of the node
    failure: str | None = None  # how the engine saw it fail: "exit code 1", "the node is down"
    was_ended: bool = False  # by the engine, while it ran: the failure is why


ENDPOINT_VARIABLE = "DDP_PERF_RDZV_ENDPOINT"
END_WITH_STDIN = "--end-with-stdin"
GRACE_S = 10.0
# For a node process that ends its ranks, whose GPU contexts may be slow to end, and torchrun.
GOODBYE_S = REAPED_S["gpu"] + 15.0


class Engine(Protocol):
    """An engine starts the same command once on each node, and supervises nothing else.

    The command is ``python -m ddp_perf.launch.nodes.node`` with its arguments. The environment of
    the process has the number of its node, from 0 on, in the variable ``node_variable``, and, if
    there are several nodes, the rendezvous endpoint in ENDPOINT_VARIABLE: ``host:port`` of node 0,
    as every node reaches it. The engine may add END_WITH_STDIN: then the process ends what it
    started, and itself, when its standard input is closed. It does so at SIGTERM in any case.
    """

    node_variable: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names that ``only`` may have, in the order of ``run``; (): this machine alone."""
        ...

    def run(
        self,
        command: Sequence[str],
        *,
        nodes: int,
        only: str | None,
        deadline_s: float,
    ) -> tuple[NodeEnd, ...]:
        """Run the command on the first ``nodes`` nodes, and return their ends, in order.

        ``only`` is the name of the one node to use instead; None: any. If one fails, which its
        exit code shows, the others are ended GRACE_S later: they may fail, too, and one of them
        may be the cause. All are ended after ``deadline_s`` seconds, and if this is interrupted.
        Raises LaunchError if the command cannot be started.
        """
        ...

    def close(self) -> None:
        """Give back all that is held between launches. A second call does nothing."""
        ...


# The facts of this node, read without importing torch.


def read_facts(tier: Tier) -> NodeFacts:
    """Return the facts of this node. On the CPU tier its GPUs are left out."""
    machine = find_gpus() if tier == "gpu" else NO_GPUS
    torch, cuda = _torch_versions()
    return NodeFacts(
        torch=torch,
        cuda=cuda,
        driver=machine.driver,
        accelerator=machine.name if tier == "gpu" else cpu_name(),
        gpus=len(machine.gpus),
        hardware=hardware_of(machine, rdma_networks()) if tier == "gpu" else None,
    )


def _torch_versions() -> tuple[str | None, str | None]:
    """Return the versions of the torch that is installed, and of its CUDA."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None, None
    versions = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return versions["__version__"], versions["cuda"]


def describe_difference(first: NodeFacts, other: NodeFacts, names: tuple[str, str]) -> str | None:
    """Return in which fact two nodes differ that must be alike, or None if they are alike.

    ``names``: of the nodes.
    """
    for field in ("torch", "cuda", "accelerator", "driver", "gpus"):
        mine, theirs = getattr(first, field), getattr(other, field)
        if mine != theirs:
            return (
                f"the nodes differ in {_WORDS[field]}: {names[0]} has {mine}, {names[1]} has"
                f" {theirs}; ranks that train together need the same"
            )
    return None


_WORDS = {
    "torch": "torch",
    "cuda": "torch's CUDA",
    "accelerator": "their GPUs or processors",
    "driver": "the driver of the GPUs",
    "gpus": "the number of GPUs",
}

# The rendezvous of a launch over several nodes, as one of them sees it.


_CONNECT_S = 2.0
_REMEDY = "rdzv_endpoint of the cluster file"


class Rendezvous:
    """The endpoint at which the torchruns of all nodes meet. Node 0 listens there."""

    def __init__(self, endpoint: str, node: int) -> None:
        self.endpoint = endpoint
        self.is_host = node == 0
        host, _, port = endpoint.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self.own_address = address_towards(self._host)

    def check(self) -> None:
        """Raise LaunchError if the nodes cannot meet at the endpoint."""
        own = self.own_address
        if own is not None and is_loopback(own) and not is_loopback(self._host):
            raise LaunchError(
                f"{self._host} is {own} on {host_name()}, so other hosts cannot reach"
                f" it there: {_REMEDY} ADDRESS:PORT, or correct /etc/hosts"
            )
        if self.is_host:
            self._check_port()

    def _check_port(self) -> None:
        # Without listening: another node that comes now would lose its connection.
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("", self._port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:  # all else is for torchrun to find
                    raise LaunchError(
                        f"port {self._port} of {self._host} is in use: choose another: {_REMEDY}"
                    ) from None

    def unreachable(self) -> str | None:
        """Return the endpoint if this node does not reach its host."""
        try:
            socket.create_connection((self._host, self._port), timeout=_CONNECT_S).close()
        except ConnectionRefusedError:
            return None  # the host answers: its torchrun has ended
        except OSError:
            return self.endpoint
        return None
