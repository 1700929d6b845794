"""The outcomes of all nodes of a launch as one outcome, with the node that is the cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.launch import FACTS, PEER_HUNG, LaunchFailure, LaunchRequest, RankResult
from ddp_perf.launch.protocol import Answer
from ddp_perf.launch.supervisor.postmortem import check_agreement


class NodeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one node, or how it was lost."""

    node: str  # its name; "": the only one
    answer: Answer | None = None
    lost: str | None = None  # why there is no answer
    is_seen: bool = False  # the engine itself saw the node fail
    output: str = ""  # the last lines of a lost server

    @property
    def failure(self) -> LaunchFailure | None:
        return None if self.answer is None else self.answer.failure


def combine(
    request: LaunchRequest, ends: Sequence[NodeEnd]
) -> tuple[RankResult, ...] | LaunchFailure:
    """Return the results of all ranks, by rank, or the failure of the launch with its node."""
    if any(end.answer is None or end.failure is not None for end in ends):
        return _named(*_cause(request, ends), ends)
    results = sorted(_results(ends), key=lambda result: result.placement.rank)
    ranks = [result.placement.rank for result in results]
    if ranks != list(range(request.case.run_ranks)):
        detail = f"there are results of the ranks {ranks}, of {request.case.run_ranks} ranks"
        return request.not_run(detail)
    disagreement = check_agreement(request, results)
    if disagreement is None:
        return tuple(results)
    culprits = [end for end in ends if disagreement.rank in _ranks(end)]
    return _named(disagreement, culprits[0] if culprits else None, ends)


def _results(ends: Sequence[NodeEnd]) -> Iterator[RankResult]:
    """Yield the results of all nodes.

    If they hung after the timed steps, only ranks of the node furthest behind say that they did.
    """
    answers = [end.answer for end in ends if end.answer is not None]
    least = min((answer.place for answer in answers if answer.place is not None), default=None)
    for answer in answers:
        for result in answer.results:
            if answer.place != least and answer.place is not None and _lacks_all(result):
                yield msgspec.structs.replace(result, missing=dict.fromkeys(FACTS, PEER_HUNG))
            else:
                yield result


def _lacks_all(result: RankResult) -> bool:
    return set(FACTS) <= result.missing.keys()


def _cause(request: LaunchRequest, ends: Sequence[NodeEnd]) -> tuple[LaunchFailure, NodeEnd | None]:
    """Return the failure that is the cause of the others, and its node.

    A rank's own error comes first, then a node that is lost, then a hang: the ranks of the other
    nodes hang, too, and those of a failed node lose their peers. A node that was asked to end comes
    last.
    """
    failed = [
        (end, end.answer, end.answer.failure)
        for end in ends
        if end.answer is not None and end.answer.failure is not None
    ]
    by_themselves = [one for one in failed if not one[1].was_ended]
    own = [one for one in by_themselves if not one[1].is_symptom]
    for end, _, failure in own:
        if failure.kind != "hang":
            return failure, end
    if lost := [end for end in ends if end.answer is None]:
        end = max(lost, key=lambda one: one.is_seen)  # a job may end for one of its nodes
        return request.not_run(end.lost or "", end.output), end
    if cut_off := [end for end, answer, _ in by_themselves if answer.unreachable]:
        return _cut_off(cut_off, ends)
    if own:
        return _furthest_behind([end for end, _, _ in own])
    end, _, failure = (by_themselves or failed)[0]
    return failure, end


def _cut_off(cut_off: Sequence[NodeEnd], ends: Sequence[NodeEnd]) -> tuple[LaunchFailure, NodeEnd]:
    """Return the failure of the node whose link is cut.

    If all others are cut off from the first node, then it is the first one that is.
    """
    first = cut_off[0]
    assert first.answer is not None
    assert first.failure is not None
    is_first = 1 < len(cut_off) == len(ends) - 1
    who = "the other nodes do" if is_first else "it does"
    detail = (
        f"{first.failure.detail}; {who} not reach {first.answer.unreachable}: check the network"
    )
    failure = msgspec.structs.replace(first.failure, detail=detail, rank=None)
    return failure, ends[0] if is_first else first


def _furthest_behind(hung: Sequence[NodeEnd]) -> tuple[LaunchFailure, NodeEnd | None]:
    """Return the failure of the node that the others wait for.

    It is the one whose rank is furthest behind. No node is named if several are equally far.
    """
    least = min(map(_place, hung))
    behind = [end for end in hung if _place(end) == least]
    failures = [end.failure for end in behind if end.failure is not None]
    if len(behind) == 1:
        return failures[0], behind[0]
    where, _, _ = failures[0].detail.partition(": ")
    failure = msgspec.structs.replace(
        failures[0],
        rank=None,
        detail=f"{where}: ranks of {len(behind)} nodes stopped there, so no node is named",
        stacks={who: text for one in failures for who, text in one.stacks.items()},
        collectives={who: text for one in failures for who, text in one.collectives.items()},
    )
    return failure, None


def _place(end: NodeEnd) -> tuple[int, int]:
    return (end.answer and end.answer.place) or (0, 0)


def _named(failure: LaunchFailure, end: NodeEnd | None, ends: Sequence[NodeEnd]) -> LaunchFailure:
    """Add the name of the node, if there are several."""
    if end is None or len(ends) == 1:
        return failure
    return msgspec.structs.replace(failure, node=end.node)


def _ranks(end: NodeEnd) -> set[int]:
    results = () if end.answer is None else end.answer.results
    return {result.placement.rank for result in results}
