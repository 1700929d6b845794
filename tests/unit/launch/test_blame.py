"""Which node of several is the cause, and when their results are one result."""

from __future__ import annotations

from ddp_perf.core.launch import FACTS, PEER_HUNG, LaunchRequest
from ddp_perf.launch.blame import NodeEnd, combine
from ddp_perf.launch.protocol import Answer
from tests.builders import make_case, make_failure, make_placement, make_rank_result

TWO_NODES = LaunchRequest(case=make_case(world_size=2, nodes=2), round=0)
LINK = "a:29400"


def measured(node, rank, *, place=None, **fields):
    result = make_rank_result(placement=make_placement(rank), **fields)
    return NodeEnd(node=node, answer=Answer(results=(result,), place=place))


def failed(node, detail="ValueError: no", *, kind="exception", rank=1, **fields):
    failure = make_failure(TWO_NODES.case, kind=kind, rank=rank, detail=detail)
    return NodeEnd(node=node, answer=Answer(failure=failure, **fields))


def hung(node, rank, place, **fields):
    detail = "hung in step 3 of 9: sleeping"
    return failed(node, detail, kind="hang", rank=rank, place=place, **fields)


def lost_peer(node):
    return failed(node, "connection closed", rank=0, is_symptom=True)


def was_ended(node):
    detail = "it was ended while its ranks ran"
    return failed(node, detail, kind="server", rank=None, was_ended=True)


def lost(node):
    return NodeEnd(node=node, lost=f"the server on {node} ended (exit code 255)", output="closed")


def test_results_are_ordered_by_rank():
    found = combine(TWO_NODES, [measured("a", 1), measured("b", 0)])

    assert [result.placement.rank for result in found] == [0, 1]


def test_ranks_of_two_nodes_that_disagree_are_a_failure():
    request = LaunchRequest(case=make_case(world_size=3, nodes=3), round=0)
    ends = [
        measured(node, rank, digest=digest)
        for rank, (node, digest) in enumerate([("a", 1), ("b", 2), ("c", 1)])
    ]

    failure = combine(request, ends)

    assert (failure.kind, failure.node, failure.rank) == ("disagreement", "b", 1)


def test_gpus_of_two_hosts_may_have_one_name_each():
    """An id of a GPU is unique on its host only."""
    request = LaunchRequest(case=make_case(tier="gpu", world_size=2, nodes=2), round=0)
    places = [make_placement(rank, device_id="GPU-1", host=host) for rank, host in enumerate("ab")]
    results = [make_rank_result(placement=place, digest=1) for place in places]
    ends = [
        NodeEnd(node=result.placement.host, answer=Answer(results=(result,))) for result in results
    ]

    assert len(combine(request, ends)) == 2


def test_the_node_of_a_ranks_own_error_is_named_before_those_that_lost_it():
    failure = combine(TWO_NODES, [lost_peer("a"), failed("b")])

    assert (failure.node, failure.rank, failure.detail) == ("b", 1, "ValueError: no")


def test_an_error_is_the_cause_of_a_hang():
    assert combine(TWO_NODES, [hung("a", 0, (3, 0)), failed("b")]).node == "b"


def test_an_error_of_a_rank_is_named_before_a_node_that_is_lost():
    assert combine(TWO_NODES, [lost("a"), failed("b")]).node == "b"


def test_a_node_that_is_lost_is_the_cause_of_a_hang():
    failure = combine(TWO_NODES, [hung("a", 0, (3, 0)), lost("b")])

    assert (failure.kind, failure.node, failure.rank) == ("server", "b", None)
    assert failure.detail == "the server on b ended (exit code 255)"
    assert failure.output == "closed"


def test_a_node_that_is_lost_is_named_before_one_that_lost_its_peers():
    assert combine(TWO_NODES, [lost_peer("a"), lost("b")]).node == "b"


def test_the_node_whose_rank_is_furthest_behind_is_named():
    failure = combine(TWO_NODES, [hung("a", 0, (8, 0)), hung("b", 1, (7, 0))])

    assert (failure.node, failure.rank) == ("b", 1)


def test_after_the_timed_steps_the_rank_that_is_furthest_behind_is_named():
    why = "hung after the timed steps: sleeping"
    ends = [
        measured("a", 0, place=(8, 0), missing=dict.fromkeys(FACTS, why)),
        measured("b", 1, place=(7, 0), missing=dict.fromkeys(FACTS, why)),
    ]

    found = combine(TWO_NODES, ends)

    assert [result.missing["probe"] for result in found] == [PEER_HUNG, why]


def test_a_rank_that_had_its_facts_keeps_them_though_others_hang():
    own = {"losses": "ValueError: no loss"}
    ends = [
        measured("a", 0, place=(8, 0), missing=own),
        measured("b", 1, place=(7, 0), missing=dict.fromkeys(FACTS, "hung")),
    ]

    assert combine(TWO_NODES, ends)[0].missing == own


def test_no_node_is_named_if_all_hang_at_one_place():
    failure = combine(TWO_NODES, [hung("a", 0, (8, 0)), hung("b", 1, (8, 0))])

    assert (failure.node, failure.rank) == (None, None)
    assert failure.detail == (
        "hung in step 3 of 9: ranks of 2 nodes stopped there, so no node is named"
    )


def test_a_node_that_does_not_reach_the_others_is_named():
    ends = hung("a", 0, (7, 0)), hung("b", 1, (8, 0), unreachable=LINK)

    failure = combine(TWO_NODES, ends)

    assert failure.node == "b"
    assert failure.detail.endswith("; it does not reach a:29400: check the network")


def test_the_first_node_is_named_if_no_other_reaches_it():
    request = LaunchRequest(case=make_case(world_size=3, nodes=3), round=0)
    cut = [hung(node, 1, (8, 0), unreachable=LINK) for node in "bc"]

    assert combine(request, [hung("a", 0, (8, 0)), *cut]).node == "a"


def test_a_node_that_lost_its_peers_is_named_before_one_that_was_asked_to_end():
    assert combine(TWO_NODES, [was_ended("a"), lost_peer("b")]).node == "b"


def test_the_only_node_has_no_name():
    request = LaunchRequest(case=make_case(world_size=2), round=0)

    assert combine(request, [failed("a")]).node is None
