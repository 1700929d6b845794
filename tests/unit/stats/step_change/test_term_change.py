"""The uncertainty of one figure's change: closed forms, and properties of any figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.step_change import figure_of, spread_of_sessions

LEVEL = 0.05


def rows(*values):
    return [{"figure": value} for value in values]


def change_of(now, *sessions, others=()):
    figure = figure_of("figure", rows(*now), [rows(*session) for session in sessions])
    return spread_of_sessions([figure, *others]).change("figure", figure, LEVEL)


def test_before_and_after_are_medians():
    found = change_of((7, 9, 8), (1, 2, 3), (5, 4, 6), (3, 3, 4))
    assert (found.before, found.after) == (3, 8)


def test_launch_variance_uses_all_deviations_but_one_of_each_side():
    figure = figure_of("figure", rows(1, 2, 4), [rows(1, 2, 3), rows(5, 5, 8)])
    assert figure.launch_variance == pytest.approx(1.4826**2)  # of 1, 2, 1, 1, 0, 3


def test_launch_variance_uses_the_mean_square_if_most_launches_are_equal():
    figure = figure_of("figure", rows(0, 0, 0, 0, 2), [rows(0, 0, 0, 0, 0)])
    assert figure.launch_variance == pytest.approx(4 / 8)


def test_a_single_session_is_assumed_to_vary_by_three_per_cent_on_four_degrees_of_freedom():
    """There is one session now and one before, and each adds its own variance."""
    found = change_of((3.0, 3.0), (2.0, 2.0))
    error = 0.03 * 2.0 * math.sqrt(2)
    assert found.uncertainty == pytest.approx(stats.t.isf(LEVEL / 2, 4) * error)


def test_a_constant_figure_has_no_uncertainty_from_two_sessions_on():
    found = change_of((1, 1), (0, 0), (0, 0))
    assert found.uncertainty == 0
    assert found.is_certain


def test_sessions_that_differ_beyond_their_launches_add_uncertainty():
    calm = change_of((1.0, 1.01, 0.99), (1.0, 1.01, 0.99), (1.0, 1.01, 0.99))
    noisy = change_of((1.0, 1.01, 0.99), (0.9, 0.91, 0.89), (1.1, 1.11, 1.09))
    assert noisy.uncertainty > 5 * calm.uncertainty


@pytest.mark.parametrize("sides", [((), (1.0,)), ((1.0,), ()), ((1.0,),)])
def test_figure_of_is_none_if_one_side_lacks_the_figure(sides):
    now, *sessions = (rows(*side) for side in sides)
    assert figure_of("figure", now, sessions) is None


MICROSECONDS = st.integers(-(10**9), 10**9).map(lambda count: count * 1e-6)
VALUES = st.lists(MICROSECONDS, min_size=1, max_size=5)


@given(VALUES, st.lists(VALUES, min_size=1, max_size=4), st.floats(1e-3, 1e3))
def test_changing_the_unit_only_scales_the_change(now, sessions, unit):
    """The figures are finite for any launches and sessions, too."""
    plain = change_of(now, *sessions)
    scaled = change_of(
        [unit * value for value in now],
        *([unit * value for value in session] for session in sessions),
    )
    assert math.isfinite(plain.uncertainty)
    assert scaled.uncertainty == pytest.approx(unit * plain.uncertainty, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("sessions", [2, 3, 5])
def test_false_changes_are_no_more_frequent_than_the_level(sessions):
    """Sessions and launches differ equally; there are eight figures, which share their sessions."""
    random = np.random.default_rng(sessions)
    false = 0
    for _ in range(200):
        level = random.normal(10, 0.3, size=(sessions + 1, 8, 1))
        launches = random.normal(level, 0.3, size=(sessions + 1, 8, 5))
        figures = [
            figure_of(
                "figure", rows(*launches[0, i]), [rows(*session) for session in launches[1:, i]]
            )
            for i in range(8)
        ]
        shared = spread_of_sessions(figures)
        false += sum(shared.change("figure", figure, LEVEL).is_certain for figure in figures)
    assert false / (200 * 8) < 1.3 * LEVEL
