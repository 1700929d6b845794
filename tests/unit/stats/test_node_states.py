"""The visits that show a node as it is, after it was mended, replaced, or became slow."""

from __future__ import annotations

import pytest

from ddp_perf.stats.fleet import NodeSpread
from ddp_perf.stats.node_states import node_states

SPREAD = NodeSpread(node=0.008**2, visit=0.003**2, node_df=20, visit_df=20)
SLOW, FAST = 0.06, -0.06


def states(*visits):
    """Return the visits of the node in its state, and whether it has left, for each session."""
    found = node_states([{"a": visit} for visit in visits], SPREAD)
    return [(one["a"].visits, one["a"].has_left) for one in found]


def test_all_visits_show_a_node_that_does_not_change():
    assert states(0.01, 0.012, 0.008) == [((0.01, 0.012, 0.008), False)] * 3


@pytest.mark.parametrize("changed", [SLOW, FAST])
def test_a_node_that_has_changed_is_left_out_once_and_its_earlier_visits_are_forgotten(changed):
    before, after = (0.0, 0.001), (changed, changed)

    found = states(*before, *after, changed)

    assert found[:2] == [(before, False)] * 2
    assert found[2] == (before, True)
    assert found[3:] == [((*after, changed), False)] * 2


@pytest.mark.parametrize("odd", [(SLOW,), (SLOW, FAST)])
def test_visits_that_do_not_agree_are_left_out_and_change_no_state(odd):
    found = states(0.0, 0.001, *odd, 0.002)

    assert [has_left for _, has_left in found] == [False, False, *[True] * len(odd), False]
    assert {visits for visits, _ in found} == {(0.0, 0.001, 0.002)}


def test_a_session_that_does_not_visit_a_node_has_no_state_of_it():
    found = node_states([{"a": 0.0, "b": 0.0}, {"b": 0.0}], SPREAD)

    assert [set(one) for one in found] == [{"a", "b"}, {"b"}]
