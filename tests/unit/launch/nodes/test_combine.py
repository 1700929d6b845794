"""Which node of several is the cause, and when their results are one result."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.errors import LaunchError
from ddp_perf.launch.nodes.node_launcher import combine, ended_nodes
from tests.builders import make_case, make_failure, make_placement, make_rank_result
from tests.unit.launch.nodes.builders import FACTS, make_end, make_outcome

TWO_NODES = LaunchRequest(case=make_case(world_size=2, nodes=2), round=0)
LINK = "a:29400"


def results_of(rank, **fields):
    return (make_rank_result(placement=make_placement(rank), **fields),)


def failed(detail="ValueError: no", *, kind="exception", rank=1, **fields):
    failure = make_failure(TWO_NODES.case, kind=kind, rank=rank, detail=detail)
    return make_outcome(failure=failure, **fields)


def hung(rank, place, **fields):
    return failed("hung in step 3 of 9: sleeping", kind="hang", rank=rank, place=place, **fields)


def combined(*ends, request=TWO_NODES):
    return combine(request, ended_nodes(ends))


def test_results_are_ordered_by_rank_whatever_the_order_of_the_nodes():
    """torchrun numbers the nodes by their addresses, not by the order of the hosts."""
    first, second = (make_outcome(results=results_of(rank)) for rank in (1, 0))

    found = combined(make_end("a", first), make_end("b", second))

    assert [result.placement.rank for result in found] == [0, 1]


def test_results_of_too_few_ranks_are_a_failure():
    nodes = [make_end(name, make_outcome(results=results_of(0))) for name in "ab"]

    assert "results of the ranks [0, 0], of 2 ranks" in combined(*nodes).detail


def test_ranks_of_two_nodes_that_disagree_are_a_failure():
    request = LaunchRequest(case=make_case(world_size=3, nodes=3), round=0)
    nodes = [
        make_end(name, make_outcome(results=results_of(rank, digest=digest)))
        for rank, (name, digest) in enumerate([("a", 1), ("b", 2), ("c", 1)])
    ]

    failure = combined(*nodes, request=request)

    assert (failure.kind, failure.node, failure.rank) == ("disagreement", "b", 1)


def test_gpus_of_two_hosts_may_have_one_name_each():
    """An id of a GPU is unique on its host only."""
    request = LaunchRequest(case=make_case(tier="gpu", world_size=2, nodes=2), round=0)
    places = [make_placement(rank, device_id="GPU-1", host=host) for rank, host in enumerate("ab")]
    nodes = [
        make_end(place.host, make_outcome(results=(make_rank_result(placement=place, digest=1),)))
        for place in places
    ]

    assert len(combined(*nodes, request=request)) == 2


def test_the_node_of_a_ranks_own_error_is_named_before_those_that_lost_it():
    lost = failed("connection closed", rank=0, is_symptom=True)

    failure = combined(make_end("a", lost), make_end("b", failed()))

    assert (failure.node, failure.rank, failure.detail) == ("b", 1, "ValueError: no")


def test_an_error_is_the_cause_of_a_hang():
    failure = combined(make_end("a", hung(0, (3, 0))), make_end("b", failed()))

    assert failure.node == "b"


def test_a_node_that_is_gone_is_the_cause_of_a_hang():
    gone = make_end("b", output="Connection to b closed.", failure="exit code 255")

    failure = combined(make_end("a", hung(0, (3, 0))), gone)

    assert (failure.kind, failure.node, failure.rank) == ("server", "b", None)
    assert failure.detail == (
        "the node process ended without an outcome (exit code 255): Connection to b closed."
    )


def test_a_node_that_its_engine_killed_is_not_the_cause_of_a_hang():
    """Its GPUs may be slow to end, and with it its outcome is lost."""
    killed = make_end("a", failure="another node failed; it was killed", was_ended=True)

    failure = combined(killed, make_end("b", hung(1, (3, 0))))

    assert (failure.kind, failure.node) == ("hang", "b")
    assert failure.detail.endswith("; node a: another node failed; it was killed")


def test_a_node_that_its_engine_killed_is_named_before_one_that_lost_its_peers():
    killed = make_end("b", failure="another node failed; it was killed", was_ended=True)
    lost = failed("connection closed", rank=0, is_symptom=True)

    failure = combined(make_end("a", lost), killed)

    assert (failure.node, "another node failed" in failure.detail) == ("b", True)


def test_the_node_whose_rank_is_furthest_behind_is_named():
    failure = combined(make_end("a", hung(0, (8, 0))), make_end("b", hung(1, (7, 0))))

    assert (failure.node, failure.rank) == ("b", 1)


def test_no_node_is_named_if_all_hang_at_one_place():
    failure = combined(make_end("a", hung(0, (8, 0))), make_end("b", hung(1, (8, 0))))

    assert (failure.node, failure.rank) == (None, None)
    assert failure.detail == (
        "hung in step 3 of 9: ranks of 2 nodes stopped there, so no node is named"
    )


def test_a_node_that_does_not_reach_the_others_is_named():
    ends = make_end("a", hung(0, (7, 0))), make_end("b", hung(1, (8, 0), unreachable=LINK))

    failure = combined(*ends)

    assert failure.node == "b"
    assert failure.detail.endswith("; it does not reach a:29400: check the network")


def test_the_first_node_is_named_if_no_other_reaches_it():
    request = LaunchRequest(case=make_case(world_size=3, nodes=3), round=0)
    cut = [make_end(name, hung(1, (8, 0), unreachable=LINK)) for name in "bc"]

    failure = combined(make_end("a", hung(0, (8, 0))), *cut, request=request)

    assert failure.node == "a"


def test_a_node_whose_torchrun_failed_is_named_before_one_that_was_ended_for_it():
    ended = failed("it was ended while its ranks ran", kind="server", was_ended=True)
    unmet = failed("torchrun ended with exit code 1", kind="server", rank=None, is_symptom=True)

    assert combined(make_end("a", ended), make_end("b", unmet)).node == "b"


def test_nodes_that_were_all_ended_have_the_reason_of_the_engine():
    ended = failed("it was ended while its ranks ran", kind="server", rank=None, was_ended=True)
    ends = [make_end(name, ended, failure="no end in 9 s") for name in "ab"]

    failure = combined(*ends)

    assert failure.detail == "it was ended while its ranks ran: no end in 9 s"
    assert failure.node is None


def test_the_only_node_has_no_name():
    request = LaunchRequest(case=make_case(world_size=2), round=0)

    assert combined(make_end("a", failed()), request=request).node is None


@pytest.mark.parametrize(
    ("field", "theirs", "words"),
    [
        ("torch", "2.12.0", "in torch: a has 2.13.0, b has 2.12.0"),
        ("driver", "570.1", "in the driver of the GPUs: a has 580.65, b has 570.1"),
        ("accelerator", "H100", "in their GPUs or processors: a has H200, b has H100"),
    ],
)
def test_nodes_that_differ_are_refused_by_name(field, theirs, words):
    other = make_outcome(facts=msgspec.structs.replace(FACTS, **{field: theirs}))

    with pytest.raises(LaunchError, match=words):
        combined(make_end("a", make_outcome()), make_end("b", other))
