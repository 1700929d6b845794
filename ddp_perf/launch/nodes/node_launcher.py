"""The launcher of torchrun, Slurm and Kubernetes: it starts nodes and combines their outcomes."""

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
from ddp_perf.launch.launcher import Runtime, check_device_order, write_collected
from ddp_perf.launch.nodes.engine import (
    Engine,
    NodeEnd,
    NodeOutcome,
    NodeRequest,
    decode_outcome,
    describe_difference,
    encode_request,
    without_outcome,
)
from ddp_perf.launch.supervisor.output import forget_output, keep_output
from ddp_perf.launch.supervisor.postmortem import check_agreement
from ddp_perf.system.capacity import Capacity, named
from ddp_perf.system.host.launch_platform import check_can_launch
from ddp_perf.system.variables import LIBRARY_PATH, training_variables

# The outcomes of all nodes of a launch as one outcome, with the node that is the cause.


_OUTPUT_LINES = 20


class EndedNode(NamedTuple):
    """The end of a node process, and the outcome that it printed, if it did."""

    end: NodeEnd
    outcome: NodeOutcome | None


def ended_nodes(ends: Sequence[NodeEnd]) -> list[EndedNode]:
    """Read the outcome of each node. Raises LaunchError if nodes differ that must be alike."""
    nodes = [EndedNode(end, decode_outcome(end.output)) for end in ends]
    known = [(node.end.node, node.outcome.facts) for node in nodes if node.outcome is not None]
    for name, facts in known[1:]:
        first_name, first = known[0]
        difference = describe_difference(first, facts, (first_name, name))
        if difference is not None:
            raise LaunchError(difference)
    return nodes


def combine(
    request: LaunchRequest, nodes: Sequence[EndedNode]
) -> tuple[RankResult, ...] | LaunchFailure:
    """Return the results of all ranks, by rank, or the failure of the launch with its node."""
    if any(node.outcome is None or node.outcome.failure is not None for node in nodes):
        return _named(*_cause(request, nodes), nodes)
    results = [result for node in nodes if node.outcome for result in node.outcome.results]
    results.sort(key=lambda result: result.placement.rank)
    ranks = [result.placement.rank for result in results]
    if ranks != list(range(request.case.world_size)):
        detail = f"there are results of the ranks {ranks}, of {request.case.world_size} ranks"
        return _failure(request, detail)
    disagreement = check_agreement(request, results)
    if disagreement is None:
        return tuple(results)
    culprits = [node for node in nodes if disagreement.rank in _ranks(node)]
    return _named(disagreement, culprits[0] if culprits else None, nodes)


class _FailedNode(NamedTuple):
    node: EndedNode
    outcome: NodeOutcome
    failure: LaunchFailure


def _cause(
    request: LaunchRequest, nodes: Sequence[EndedNode]
) -> tuple[LaunchFailure, EndedNode | None]:
    """Return the failure that is the cause of the others, and its node.

    A rank's own error comes first, then a node that is lost, then a hang: the ranks of the other
    nodes hang, too, and those of a failed node lose their peers. A node that its engine ended comes
    after a hang, even if it is lost then: it may only be slow to end.
    """
    failed = [
        _FailedNode(node, node.outcome, node.outcome.failure)
        for node in nodes
        if node.outcome is not None and node.outcome.failure is not None
    ]
    ended = [one for one in failed if one.outcome.was_ended]
    failed = [one for one in failed if not one.outcome.was_ended]
    own = [one for one in failed if not one.outcome.is_symptom]
    for one in own:
        if one.failure.kind != "hang":
            return one.failure, one.node
    lost = [node for node in nodes if node.outcome is None]
    for node in lost:
        if not node.end.was_ended:
            return _lost(request, node.end), node
    cut_off = [one for one in failed if one.outcome.unreachable]
    if cut_off:
        return _cut_off(cut_off, nodes)
    if own:
        failure, behind = _furthest_behind(own)
        silent = "".join(f"; node {one.end.node}: {one.end.failure}" for one in lost)
        return msgspec.structs.replace(failure, detail=failure.detail + silent), behind
    if lost:
        return _lost(request, lost[0].end), lost[0]
    if failed:
        return failed[0].failure, failed[0].node
    failure = ended[0].failure
    why = ended[0].node.end.failure
    return msgspec.structs.replace(failure, detail=f"{failure.detail}: {why}"), None


def _cut_off(
    cut_off: Sequence[_FailedNode], nodes: Sequence[EndedNode]
) -> tuple[LaunchFailure, EndedNode]:
    """Return the failure of the node whose link is cut.

    If all others are cut off from the first node, then it is the first one that is.
    """
    first = cut_off[0]
    is_first = 1 < len(cut_off) == len(nodes) - 1
    who = "the other nodes do" if is_first else "it does"
    detail = (
        f"{first.failure.detail}; {who} not reach {first.outcome.unreachable}: check the network"
    )
    failure = msgspec.structs.replace(first.failure, detail=detail, rank=None)
    return failure, nodes[0] if is_first else first.node


def _furthest_behind(hung: Sequence[_FailedNode]) -> tuple[LaunchFailure, EndedNode | None]:
    """Return the failure of the node that the others wait for.

    It is the one whose rank is furthest behind. No node is named if several are equally far.
    """
    least = min(one.outcome.place or (0, 0) for one in hung)
    behind = [one for one in hung if (one.outcome.place or (0, 0)) == least]
    first = behind[0]
    if len(behind) == 1:
        return first.failure, first.node
    where, _, _ = first.failure.detail.partition(": ")
    failure = msgspec.structs.replace(
        first.failure,
        rank=None,
        detail=f"{where}: ranks of {len(behind)} nodes stopped there, so no node is named",
        stacks={who: text for one in behind for who, text in one.failure.stacks.items()},
        collectives={who: text for one in behind for who, text in one.failure.collectives.items()},
    )
    return failure, None


def _lost(request: LaunchRequest, end: NodeEnd) -> LaunchFailure:
    lines = without_outcome(end.output).splitlines()[-_OUTPUT_LINES:]
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    how = end.failure or "exit code 0"
    detail = f"the node process ended without an outcome ({how})" + (f": {last}" if last else "")
    return _failure(request, detail, output="\n".join(lines))


def _failure(request: LaunchRequest, detail: str, output: str = "") -> LaunchFailure:
    return LaunchFailure(
        case_id=request.case.id,
        round=request.round,
        kind="server",
        rank=None,
        detail=detail,
        output=output,
    )


def _named(
    failure: LaunchFailure, node: EndedNode | None, nodes: Sequence[EndedNode]
) -> LaunchFailure:
    """Add the name of the node, if there are several."""
    if node is None or len(nodes) == 1:
        return failure
    return msgspec.structs.replace(failure, node=node.end.node)


def _ranks(node: EndedNode) -> set[int]:
    results = () if node.outcome is None else node.outcome.results
    return {result.placement.rank for result in results}


# The launcher of torchrun, Slurm and Kubernetes: an engine starts a process on each node.


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
        write_collected(
            request, records=_files("records", nodes), profiles=_files("profiles", nodes)
        )
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
