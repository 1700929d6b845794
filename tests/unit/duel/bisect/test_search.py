"""Whole searches on a simulated line of commits with recorded noise. Nothing is timed."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import DuelOutcome
from ddp_perf.duel.bisect.search import Question, Suspects, place_of, search_state
from tests.builders import make_logged
from tests.simulated_commits import Line, simulated_search

AT = [1, 2, 7, 8, 9, 16, 20, 21, 31, 32]  # two cannot be launched: 8 and 20
UNTESTABLE = frozenset({8, 20})


def test_ten_searches_find_eight_per_cent_among_thirty_two_commits():
    """The stated probability is 95 %: two wrong ones of ten have a chance of 9 %, three 1 %."""
    right = 0
    for seed, at in enumerate(AT):
        line = Line(length=32, steps={at: 0.08}, untestable=UNTESTABLE)
        now, launches = simulated_search(line, seed=seed, most=150)
        right += line.is_right(now.suspects)
        assert now.outcome == "found"
        assert len(launches) < 150
    assert right >= 8


def test_a_commit_that_cannot_be_launched_is_asked_once_and_blamed_with_the_next_one():
    line = Line(length=32, steps={16: 0.5}, untestable=frozenset({16}))

    now, launches = simulated_search(line, seed=1, most=150)

    assert now.suspects == (Suspects(first=16, last=17),)
    assert [place_of(launch) for launch in launches if launch.failure] == [16]
    assert now.untestable == {16: "No module named 'missing'"}


def test_two_steps_are_both_found():
    line = Line(length=16, steps={4: 0.2, 11: 0.2})

    now, _ = simulated_search(line, seed=1, most=150)

    assert now.suspects == (Suspects(first=4, last=4), Suspects(first=11, last=11))


def test_without_a_slow_down_there_is_nothing_to_find():
    now, launches = simulated_search(Line(length=16, steps={}), seed=1, most=400)

    assert now.outcome == "not slower"
    assert now.duel.outcome is not DuelOutcome.SLOWER
    assert {place_of(launch) for launch in launches} == {0, 16}


def test_a_faster_commit_is_no_slow_down():
    now, _ = simulated_search(Line(length=16, steps={5: -0.2}), seed=1, most=400)

    assert (now.outcome, now.duel.outcome) == ("not slower", DuelOutcome.FASTER)


def test_a_budget_that_is_over_leaves_it_undecided_with_the_smallest_set():
    line = Line(length=32, steps={20: 0.08})

    now, launches = simulated_search(line, seed=1, most=30)

    assert now.outcome == "undecided"
    suspects, chance = now.belief.smallest(0.95)
    assert chance >= 0.95
    assert suspects.last - suspects.first + 1 < 32
    assert len(launches) <= 30


def test_a_budget_of_a_few_pairs_of_good_and_bad_is_undecided():
    now, launches = simulated_search(Line(length=32, steps={20: 0.08}), seed=1, most=4)

    assert (now.outcome, now.belief, len(launches)) == ("undecided", None, 4)


def test_the_standing_depends_on_the_launches_alone_so_a_search_can_end_anywhere():
    question = Question(length=32)
    whole, launches = simulated_search(
        Line(length=32, steps={9: 0.2}, untestable=UNTESTABLE), seed=1, most=150
    )
    blocks = {launch.block for launch in launches}

    for block in blocks - {0}:
        before = [launch for launch in launches if launch.block < block]
        asked = {place_of(launch) for launch in launches if launch.block == block}
        assert asked <= set(search_state(question, before).ask)
    assert search_state(question, launches) == whole


def test_a_launch_without_its_partner_changes_nothing():
    """A kill between the two launches of a pair leaves one."""
    question = Question(length=32)
    _, launches = simulated_search(Line(length=32, steps={9: 0.2}), seed=1, most=150)
    half = launches[:-1]

    assert search_state(question, half).ask == search_state(question, launches[:-2]).ask
    assert search_state(question, half).belief == search_state(question, launches[:-2]).belief


@pytest.mark.parametrize("wall_moves", [True, False])
def test_the_steadier_metric_decides_and_a_slow_down_that_it_does_not_see_is_found_by_the_other(
    wall_moves,
):
    """CPU time is ten times steadier; a step that waits longer has the same CPU time."""
    line = Line(length=8, steps={5: 0.3})
    now, launches = simulated_search(line, seed=1, most=100)
    question = Question(length=8)

    def steady(launch):
        cpu = 0.01 * (1.3 if place_of(launch) >= 5 and not wall_moves else 1)
        wobble = 1 + 0.0001 * (launch.block % 2)
        values = {"step_time": launch.values["step_time"], "cpu_time": cpu * wobble}
        return make_logged(launch.arm, launch.block, launch.turn, arms=2, **values)

    found = search_state(question, [steady(launch) for launch in launches])

    assert found.metric == ("step_time" if wall_moves else "cpu_time")
    assert found.suspects == now.suspects
