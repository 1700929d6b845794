"""Collectives over nodes: closed forms, and properties that do not depend on the node size."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.stats.link import Link, Topology, collective_s, flat, ring_s, tree_s

NEAR = Link(latency_s=1e-6, bytes_per_s=100e9)
FAR = Link(latency_s=1e-5, bytes_per_s=10e9)
NODES_OF_8 = Topology(gpus_per_node=8, intra=NEAR, inter=FAR)
S = 1e8


def all_reduce_s(algorithm, ranks, topology=NODES_OF_8):
    return collective_s(algorithm, "all_reduce", S, ranks, topology)


def test_within_a_node_only_its_own_link_counts():
    for ranks in (1, 2, 8):
        assert all_reduce_s("ring", ranks) == ring_s("all_reduce", S, ranks, NEAR)
        assert all_reduce_s("tree", ranks) == tree_s("all_reduce", S, ranks, NEAR)
        assert all_reduce_s("hierarchical", ranks) == ring_s("all_reduce", S, ranks, NEAR)


def test_a_ring_over_nodes_has_the_pace_of_the_slower_link():
    assert all_reduce_s("ring", 32) == pytest.approx(62e-5 + 2 * 31 / 32 * S / 10e9)


def test_a_tree_over_nodes_uses_each_link_by_its_own_depth():
    messages_s = 2 * (3 * 1e-6 + 2 * 1e-5)  # 8 ranks within, 4 nodes between

    assert all_reduce_s("tree", 32) == pytest.approx(messages_s + 2 * 31 / 32 * S / 10e9)


def test_hierarchical_is_scatter_all_reduce_gather():
    within = 14e-6 + 2 * 7 / 8 * S / 100e9
    between = 6e-5 + 2 * 3 / 4 * S / 10e9

    assert all_reduce_s("hierarchical", 32) == pytest.approx(within + between)


def test_a_partly_filled_node_counts_as_a_node():
    assert NODES_OF_8.nodes(9) == 2
    assert NODES_OF_8.nodes(16) == 2


@given(
    ranks=st.integers(1, 4096),
    per_node=st.integers(1, 64),
    algorithm=st.sampled_from(["ring", "tree", "hierarchical"]),
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]),
)
def test_the_cost_is_linear_in_latency_and_payload(ranks, per_node, algorithm, kind):
    """A fit with coefficients relies on this."""
    topology = Topology(gpus_per_node=per_node, intra=NEAR, inter=FAR)
    endless = [msgspec.structs.replace(link, bytes_per_s=math.inf) for link in (NEAR, FAR)]
    instant = [msgspec.structs.replace(link, latency_s=0.0) for link in (NEAR, FAR)]
    messages, wires = (
        Topology(gpus_per_node=per_node, intra=near, inter=far) for near, far in (endless, instant)
    )

    whole = collective_s(algorithm, kind, S, ranks, topology)

    parts = collective_s(algorithm, kind, S, ranks, messages) + collective_s(
        algorithm, kind, S, ranks, wires
    )
    assert whole == pytest.approx(parts)


@given(ranks=st.integers(1, 4096), per_node=st.integers(1, 64))
def test_nodes_with_equal_links_cost_the_same_as_one_ring(ranks, per_node):
    same = Topology(gpus_per_node=per_node, intra=NEAR, inter=NEAR)

    assert all_reduce_s("ring", ranks, same) == pytest.approx(
        all_reduce_s("ring", ranks, flat(NEAR))
    )
