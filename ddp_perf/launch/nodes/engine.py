"""The interface of an engine: torchrun on hosts, Slurm, or Kubernetes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ddp_perf.launch.supervisor.rank import REAPED_S


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
