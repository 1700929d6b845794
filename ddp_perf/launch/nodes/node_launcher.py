"""The launcher of torchrun, Slurm and Kubernetes: an engine starts a process on each node."""

from __future__ import annotations

import datetime
import os
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.launch import LaunchFailure, LaunchRequest, LaunchResult, RankResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.brought import write_brought
from ddp_perf.launch.environment import check_device_order
from ddp_perf.launch.launcher import Runtime
from ddp_perf.launch.nodes.combine import EndedNode, combine, ended_nodes
from ddp_perf.launch.nodes.engine import Engine, NodeEnd
from ddp_perf.launch.nodes.outcome import NodeRequest, encode_request, without_outcome
from ddp_perf.launch.supervisor.output import forget_output, keep_output
from ddp_perf.system.capacity import Capacity, named
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.system.variables import LIBRARY_PATH, training_variables

_DESCRIBE_S = 300.0  # an import of torch from a cold network disk takes minutes
_START_S = 60.0  # of the node processes and of torchrun, and their ends


class _FirstNode(NamedTuple):
    runtime: Runtime
    capacity: Capacity


class NodeLauncher:
    """A launcher that runs each launch through torchrun on every node of the case.

    ``nodes`` is the number of nodes that the engine has, and ``interpreter`` the Python of all of
    them. With ``each_node`` a launch has one of them, so that one that is down costs no other one
    its launches. Use it from the main thread.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        nodes: int = 1,
        each_node: bool = False,
        interpreter: str = sys.executable,
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._each_node = each_node
        self._interpreter = interpreter
        self._described: dict[frozenset[tuple[str, str]], _FirstNode] = {}

    def nodes(self, case: Case) -> tuple[str, ...]:
        return self._engine.nodes

    def runtime(self, case: Case | None = None) -> Runtime:
        """Return the versions on the first node, after a check that all nodes are alike."""
        return self._first_node(case).runtime

    def capacity(self) -> Capacity:
        """Return the capacity of the first node, under the name that the engine has for it."""
        return self._first_node(None).capacity

    def launch(self, request: LaunchRequest) -> LaunchResult | LaunchFailure:
        started = datetime.datetime.now(datetime.timezone.utc)
        begin = time.monotonic()
        if request.output is not None:
            forget_output(Path(request.output))
        ends = self._run(
            self._request(request.case, request), nodes=request.case.nodes, only=request.node
        )
        nodes = ended_nodes(ends)
        write_brought(request, records=_files("records", nodes), profiles=_files("profiles", nodes))
        outcome = combine(request, nodes)
        if isinstance(outcome, LaunchFailure):
            return outcome
        return self._result(request, outcome, nodes, started, time.monotonic() - begin)

    def close(self) -> None:
        self._engine.close()

    def _first_node(self, case: Case | None) -> _FirstNode:
        env = case.env if case is not None else {}
        key = frozenset(env.items())
        if key not in self._described:
            self._described[key] = self._describe(case)
        return self._described[key]

    def _describe(self, case: Case | None) -> _FirstNode:
        described, problems = [], []
        for end, outcome in self._asked(self._request(case, None)):
            if outcome is None or outcome.runtime is None or outcome.capacity is None:
                text = without_outcome(end.output).strip()
                why = text.splitlines()[-1] if text else end.failure or "no output"
                problems.append(f"node {end.node}: no rank can be started there: {why}")
            else:
                described.append(_FirstNode(outcome.runtime, named(outcome.capacity, end.node)))
        if problems and not (self._each_node and described):
            raise LaunchError(problems[0])
        return described[0]

    def _asked(self, request: NodeRequest) -> list[EndedNode]:
        """Return the answer of every node; with ``each_node``, known ones are asked one by one."""
        if not (self._each_node and self._engine.nodes):
            return ended_nodes(self._run(request, nodes=self._nodes))
        each = [self._run(request, nodes=1, only=node) for node in self._engine.nodes]
        return ended_nodes([end for ends in each for end in ends])

    def _request(self, case: Case | None, launch: LaunchRequest | None) -> NodeRequest:
        check_can_launch()
        tier = "cpu" if case is None else case.tier
        env = {} if case is None else case.env
        if tier == "gpu":
            check_device_order({**os.environ, **env})
        return NodeRequest(
            launch=launch,
            tier=tier,
            id=uuid.uuid4().hex,
            environ={**_forwarded(tier), **_interfaces(), **env},
            node_variable=self._engine.node_variable,
        )

    def _run(
        self, request: NodeRequest, *, nodes: int, only: str | None = None
    ) -> tuple[NodeEnd, ...]:
        command = [
            self._interpreter, "-m", "ddp_perf.launch.nodes.node", encode_request(request)
        ]  # fmt: skip
        return self._engine.run(
            command, nodes=nodes, only=only, deadline_s=_deadline_s(request.launch)
        )

    def _result(
        self,
        request: LaunchRequest,
        results: tuple[RankResult, ...],
        nodes: Sequence[EndedNode],
        started: datetime.datetime,
        wall_s: float,
    ) -> LaunchResult:
        output = None
        if request.output is not None:
            printed = _files("output", nodes)
            output = keep_output(Path(request.output), printed)
        return LaunchResult(
            case_id=request.case.id,
            round=request.round,
            ranks=results,
            started=started.isoformat(timespec="seconds"),
            wall_s=wall_s,
            output=output,
            node_hardware=tuple(
                node.outcome.facts.hardware
                for node in nodes
                if len(nodes) > 1 and node.outcome and node.outcome.facts.hardware
            ),
        )


def _forwarded(tier: Tier) -> dict[str, str]:
    """Return the variables that ranks on every node get.

    Each node has its own libraries, and its own nccl.conf, before which a variable would come.
    """
    return {
        name: value
        for name, value in training_variables(tier, os.environ).items()
        # A shell on another host gets the path of libraries before Python starts.
        if name in os.environ and name != LIBRARY_PATH
    }


def _interfaces() -> dict[str, str]:
    """Return the user's own choice of a network interface, which every node then uses."""
    name = "GLOO_SOCKET_IFNAME"
    return {name: os.environ[name]} if name in os.environ else {}


def _deadline_s(launch: LaunchRequest | None) -> float:
    """Return the seconds after which the nodes of a launch are ended, whatever they do.

    Each node ends earlier if its ranks make no progress. This is for nodes that are themselves
    stuck.
    """
    if launch is None:
        return _DESCRIBE_S
    schedule = launch.case.schedule
    return _START_S + schedule.start_deadline_s + schedule.steps * schedule.step_deadline_s


def _files(kind: str, nodes: Sequence[EndedNode]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for node in nodes:
        if node.outcome is not None:
            found |= msgspec.structs.asdict(node.outcome)[kind]
    return found
