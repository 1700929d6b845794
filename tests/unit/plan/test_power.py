"""The power of a plan: what is found by which night, against drawn sessions of the same model."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from ddp_perf.plan.fleet_file import MOST_NIGHTS
from ddp_perf.plan.power import CodePower, NodePower, night_of, smallest_found
from ddp_perf.stats.fleet import DOUBTFUL, LEFT, NodeSpread, code_errors
from ddp_perf.stats.rule.suspicion import level_of_one_session

SPREAD = NodeSpread(node=1e-4, visit=4e-5, node_df=1e6, visit_df=1e6)


def code_power(*, nodes=8, session=0.004, sessions=10_000, **changes):
    errors = code_errors(SPREAD, session=session**2, nodes=nodes, visits=0, sessions=sessions)
    return CodePower(**{"errors": errors, "tolerance": 0.02, "alpha": 0.001, **changes})


def node_power(**changes):
    given = NodePower(
        spread=SPREAD, visits=6, nodes=32, every=1, verdicts=32, rate=0.01, tolerance=0.02
    )
    return msgspec.structs.replace(given, **changes)


def test_the_first_session_finds_its_minimum_detectable_effect_nine_times_in_ten():
    power = code_power()

    assert power.found(power.smallest)[0] == pytest.approx(0.9, abs=0.01)


def test_unchanged_code_is_red_at_most_at_the_level_of_one_session():
    power = code_power(tolerance=1e-6)

    assert power.found(0.0)[0] <= level_of_one_session(0.001) * 1.05


def test_later_sessions_find_more_and_larger_slow_downs_are_found_sooner():
    power = code_power()

    assert (np.diff(power.found(0.03)) >= 0).all()
    assert (power.found(0.04) >= power.found(0.03) - 1e-9).all()


def test_a_row_of_suspect_sessions_finds_what_one_session_rarely_does():
    """Independent nights at the power of the first would find less by the fourth."""
    found = code_power(session=0.006, alpha=1e-4).found(0.03)

    assert 1 - (1 - found[0]) ** 4 < 0.01
    assert found[3] > 0.6


def test_a_node_is_reported_on_the_night_after_it_first_is_slow():
    found = node_power().found(0.5)

    assert found[0] == 0
    assert found[1] == pytest.approx(1.0, abs=1e-6)


def test_a_node_that_is_visited_every_k_nights_is_found_on_any_of_them_alike():
    found = node_power(every=10).found(0.5)

    assert np.diff(found[:11]) == pytest.approx([0.1] * 10, abs=1e-6)


def test_more_verdicts_a_night_find_less():
    """By one visit each and its repetition: three visits of a slow node suffice for either."""
    few, many = node_power(verdicts=32), node_power(verdicts=2048)

    assert many.found(0.05)[1] < few.found(0.05)[1] - 0.05


def test_the_second_visit_confirms_by_the_chance_that_keeps_a_node_red():
    power = node_power(verdicts=2048)
    first = power._exceeds(0.04, 1, power.rate / power.verdicts)
    again = power._exceeds(0.04, 2, DOUBTFUL, LEFT)

    assert power.found(0.04)[1] == pytest.approx(first * again)
    assert again > first + 0.1


def test_the_night_of_a_share():
    assert night_of(np.array([0.1, 0.5, 0.9]), 0.5) == 2
    assert night_of(np.array([0.1, 0.5, 0.9]), 0.95) is None


def test_the_smallest_slow_down_is_found_with_the_asked_probability():
    power = node_power(every=4)
    smallest = smallest_found(power, by=14, share=0.9)

    assert power.found(smallest)[13] >= 0.9
    assert power.found(smallest - 0.001)[13] < 0.9


def test_nothing_is_found_in_the_first_night_of_a_node_that_needs_two():
    assert smallest_found(node_power(), by=1, share=0.9) is None


def test_a_fleet_without_noise_is_planned():
    silent = NodeSpread(node=0.0, visit=0.0, node_df=1.0, visit_df=1.0)
    errors = code_errors(silent, session=0.0, nodes=4, visits=0, sessions=30)
    power = CodePower(errors=errors, tolerance=0.02, alpha=0.001)

    assert power.found(0.03) == pytest.approx([1.0] * MOST_NIGHTS)
    assert node_power(spread=silent).found(0.03)[1] == pytest.approx(1.0)
