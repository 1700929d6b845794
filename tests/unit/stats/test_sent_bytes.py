"""The bytes that a rank sends in a step, by the formulas of the ring algorithms."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import Collective
from ddp_perf.stats.link import sent_bytes
from tests.builders import make_cases, make_structure

BYTES = 4000
PLAIN = 2 * 3 / 4 * BYTES  # an all-reduce of four ranks


def sent(*collectives, **changes):
    case = make_cases(world_sizes=[4], **changes)[0]
    calls = [Collective(kind=kind, dtype="float32", bytes=size) for kind, size in collectives]
    return sent_bytes(case, make_structure(collectives=tuple(calls)))


def test_an_all_reduce_sends_almost_twice_its_payload():
    assert sent(("all_reduce", BYTES)) == PLAIN


def test_fsdp_sends_half_as_much_again():
    """It gathers parameters for the forward and for the backward, and scatters gradients."""
    calls = [("all_gather", BYTES), ("all_gather", BYTES), ("reduce_scatter", BYTES)]

    assert sent(*calls, strategy="fsdp") == 1.5 * PLAIN


def test_hybrid_sharding_sends_gradients_between_nodes_only():
    calls = [("all_gather", BYTES), ("reduce_scatter", BYTES), ("all_reduce", BYTES // 2)]
    options = {"strategy": "fsdp", "fsdp": {"replicate": "nodes"}}

    on_two = sent(*calls, ranks_per_node=2, **options)

    assert on_two == BYTES / 2 + BYTES / 2 + BYTES // 2
    assert sent(*calls[:2], **options) == 2 * 3 / 4 * BYTES  # of four ranks on one node


def test_hierarchical_all_reduce_sends_as_much_as_a_flat_one():
    """It sends less of it between groups."""
    bucket = [("reduce_scatter", BYTES), ("all_reduce", BYTES // 2), ("all_gather", BYTES)]
    hook = {"kind": "hierarchical", "group_size": 2}

    assert sent(*bucket, comm_hooks=[hook]) == PLAIN
    assert sent(*bucket, *bucket, ("broadcast", 8), comm_hooks=[hook]) == 2 * PLAIN + 8


def test_with_top_k_between_groups_the_groups_gather():
    hook = {"kind": "hierarchical", "group_size": 2, "ratio": 0.1}
    calls = [
        ("reduce_scatter", BYTES),
        ("all_gather", 400),
        ("all_gather", 400),
        ("all_gather", BYTES),
    ]

    assert sent(*calls, comm_hooks=[hook]) == BYTES / 2 + 200 + 200 + BYTES / 2


@pytest.mark.parametrize(
    "hook",
    [
        {"kind": "hierarchical", "group_size": 2},  # the second collective is not the hook's
        {"kind": "post_local_sgd", "group_size": 2},  # only some steps average parameters
    ],
    ids=["other collectives", "steps differ"],
)
def test_what_is_not_known_is_not_guessed(hook):
    assert sent(("all_reduce", BYTES), ("all_reduce", 8), comm_hooks=[hook]) is None


def test_one_rank_sends_nothing():
    case = make_cases()[0]

    assert sent_bytes(case, make_structure(collectives=())) == 0
