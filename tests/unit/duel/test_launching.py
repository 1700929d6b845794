"""Launches of several sides in turn."""

from __future__ import annotations

import random
from collections import Counter

from ddp_perf.duel.open_sides import Turn, launch_turns
from tests.builders import FakeLauncher, make_case


def test_each_side_is_the_first_about_equally_often_and_outcomes_keep_their_places():
    a, b = FakeLauncher(), FakeLauncher()
    turns = [
        Turn(a, make_case(id="a"), ()),
        Turn(b, make_case(id="b"), ()),
    ]
    order = random.Random(1)
    firsts = Counter()

    for block in range(100):
        places = []
        outcomes = launch_turns(turns, block=block, order=order, on_turn=places.append)
        assert [(one.case_id, one.round) for one in outcomes] == [("a", block), ("b", block)]
        assert sorted(places) == [0, 1]
        firsts[places[0]] += 1

    assert min(firsts.values()) > 30
    assert a.asked == [("a", block) for block in range(100)]
