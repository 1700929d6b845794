"""Costs of collectives against their closed forms, and against the bytes that must be sent."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.stats.link import Link, bus_factor, ring_s, tree_s

LINK = Link(latency_s=1e-5, bytes_per_s=1e10)
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")


@pytest.mark.parametrize(
    ("kind", "ring", "tree"),
    [
        pytest.param("all_reduce", 14e-5 + 1.75e-4, 6e-5 + 1.75e-4, id="all-reduce"),
        pytest.param("all_gather", 7e-5 + 8.75e-5, 3e-5 + 8.75e-5, id="all-gather"),
        pytest.param("reduce_scatter", 7e-5 + 8.75e-5, 3e-5 + 8.75e-5, id="reduce-scatter"),
        pytest.param("broadcast", 7e-5 + 1e-4, 3e-5 + 1e-4, id="broadcast"),
    ],
)
def test_cost_of_a_megabyte_over_eight_ranks(kind, ring, tree):
    assert ring_s(kind, 1e6, 8, LINK) == pytest.approx(ring)
    assert tree_s(kind, 1e6, 8, LINK) == pytest.approx(tree)


@pytest.mark.parametrize("kind", KINDS)
def test_a_collective_of_one_rank_takes_no_time(kind):
    assert ring_s(kind, 1e6, 1, LINK) == tree_s(kind, 1e6, 1, LINK) == 0


@given(ranks=st.integers(2, 10_000), payload=st.floats(0, 1e12), kind=st.sampled_from(KINDS))
def test_a_tree_sends_the_bytes_of_a_ring_in_no_more_messages(ranks, payload, kind):
    wire = Link(latency_s=0.0, bytes_per_s=1e10)
    sent_s = payload * bus_factor(kind, ranks) / 1e10

    assert tree_s(kind, payload, ranks, wire) == ring_s(kind, payload, ranks, wire)
    assert ring_s(kind, payload, ranks, wire) == pytest.approx(sent_s)
    assert tree_s(kind, payload, ranks, LINK) <= ring_s(kind, payload, ranks, LINK)


@given(ranks=st.integers(2, 10_000))
def test_the_depth_of_a_tree_is_the_logarithm_rounded_up(ranks):
    endless = Link(latency_s=1.0, bytes_per_s=math.inf)

    assert tree_s("all_gather", 1e9, ranks, endless) == math.ceil(round(math.log2(ranks), 9))
