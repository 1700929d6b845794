"""The outcomes of all nodes of a launch as one outcome, with the node that is the cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ddp_perf.core.launch import LaunchFailure, LaunchRequest, RankResult
from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.engine import NodeEnd
from ddp_perf.launch.nodes.facts import describe_difference
from ddp_perf.launch.nodes.outcome import NodeOutcome, decode_outcome, without_outcome
from ddp_perf.launch.supervisor.agreement import check_agreement

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
