"""Lengths of unions and intersections, against a count of whole µs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.traces.intervals import Intervals, covered, merged, union

# Whole numbers, so that every µs is in an interval or not.
INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def made(pairs):
    start = np.array([start for start, _ in pairs], dtype=float)
    return Intervals(start, start + np.array([length for _, length in pairs], dtype=float))


def whole(pairs):
    """Every µs that any of them covers."""
    return {us for start, length in pairs for us in range(start, start + length)}


@given(INTERVALS)
def test_a_union_is_as_long_as_the_time_it_covers(pairs):
    assert merged(made(pairs)).length == len(whole(pairs))


@given(INTERVALS)
def test_a_union_is_disjoint_and_in_order(pairs):
    union_ = merged(made(pairs))

    assert np.all(union_.start[1:] > union_.end[:-1])
    assert np.all(union_.start <= union_.end)


@given(INTERVALS, st.randoms())
def test_the_order_of_events_does_not_matter(pairs, random):
    shuffled = random.sample(pairs, len(pairs))

    assert merged(made(pairs)).length == merged(made(shuffled)).length


@given(INTERVALS, INTERVALS)
def test_what_is_covered_is_the_intersection(pairs, others):
    inside = covered(made(pairs), merged(made(others)))

    assert inside.tolist() == [len(whole([pair]) & whole(others)) for pair in pairs]


@given(INTERVALS, INTERVALS)
def test_the_union_of_two_kinds_counts_what_both_cover_once(pairs, others):
    both = union(made(pairs), made(others))

    assert both.length == len(whole(pairs) | whole(others))


def test_touching_intervals_are_one():
    assert merged(made([(0, 5), (5, 5)])).start.tolist() == [0]


def test_an_interval_of_no_length_covers_nothing():
    nothing = merged(made([(5, 0)]))

    assert nothing.length == 0
    assert covered(made([(0, 10)]), nothing).tolist() == [0]
