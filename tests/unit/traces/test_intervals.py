"""Lengths of unions and intersections equal a count of whole µs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.traces.timeline import Intervals, covered, merged, union

# Whole numbers, so that every µs is in an interval or not.
INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def made(pairs):
    start = np.array([start for start, _ in pairs], dtype=float)
    return Intervals(start, start + np.array([length for _, length in pairs], dtype=float))


def whole(pairs):
    """Return every µs that any of the intervals covers."""
    return {us for start, length in pairs for us in range(start, start + length)}


@given(INTERVALS)
def test_union_is_as_long_as_the_time_it_covers(pairs):
    assert merged(made(pairs)).length == len(whole(pairs))


@given(INTERVALS)
def test_union_is_disjoint_and_in_order(pairs):
    union_ = merged(made(pairs))

    assert np.all(union_.start[1:] > union_.end[:-1])
    assert np.all(union_.start <= union_.end)


@given(INTERVALS, st.randoms())
def test_union_does_not_depend_on_the_order_of_events(pairs, random):
    shuffled = random.sample(pairs, len(pairs))

    assert merged(made(pairs)).length == merged(made(shuffled)).length


@given(INTERVALS, INTERVALS)
def test_covered_is_the_length_of_the_intersection(pairs, others):
    inside = covered(made(pairs), merged(made(others)))

    assert inside.tolist() == [len(whole([pair]) & whole(others)) for pair in pairs]


@given(INTERVALS, INTERVALS)
def test_union_counts_time_covered_twice_once(pairs, others):
    both = union(made(pairs), made(others))

    assert both.length == len(whole(pairs) | whole(others))


def test_touching_intervals_are_joined():
    assert merged(made([(0, 5), (5, 5)])).start.tolist() == [0]


def test_interval_without_length_covers_nothing():
    nothing = merged(made([(5, 0)]))

    assert nothing.length == 0
    assert covered(made([(0, 10)]), nothing).tolist() == [0]
