"""Steps and drifts are found at their place; quiet sessions have none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.history.trend import (
    LEAST_LEVEL,
    SD_EFFICIENCY,
    Move,
    cut,
    find_moves,
    fit,
    median_of_three,
    noise_sd,
    residual_sd,
    split_gain,
)


def quiet(seed, sessions=60, sd=0.01):
    return np.random.default_rng(seed).normal(0, sd, sessions)


def moves(sessions):
    return list(find_moves(np.asarray(sessions, dtype=float)).moves)


def correlated(seed, sessions=60):
    levels = quiet(seed, sessions)
    for session in range(1, sessions):
        levels[session] += 0.3 * levels[session - 1]
    return levels


def heavy_tailed(seed, sessions=60):
    return 0.01 * np.random.default_rng(seed).standard_t(3, sessions)


def test_one_look_at_a_quiet_series_finds_nothing():
    assert not any(moves(quiet(seed)) for seed in range(1000))


@pytest.mark.slow
@pytest.mark.parametrize(("draw", "most"), [(quiet, 1), (correlated, 5), (heavy_tailed, 1)])
def test_few_of_many_looks_at_growing_quiet_series_find_a_move(draw, most):
    alarms = 0
    for seed in range(40):
        sessions = draw(seed)
        alarms += any(moves(sessions[:count]) for count in range(7, 61))

    assert alarms <= most  # with levels of two sessions, and 1 % a look: 12, 18 and 6


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("session", [6, 20, 40, 54])
def test_step_is_found_at_its_session(session, sign):
    sessions = quiet(1, sd=0.002)
    sessions[session:] += sign * 0.03

    assert moves(sessions) == [Move(session, session)]


def test_step_needs_more_than_two_sessions_and_has_its_place_after_six():
    sessions = quiet(2, 46, sd=0.002)
    sessions[40:] += 0.03

    assert moves(sessions[:42]) == []
    assert moves(sessions) == [Move(40, 40)]


def test_slower_sessions_that_are_mended_after_two_are_no_change():
    sessions = quiet(2, sd=0.002)
    sessions[30:32] += 0.03

    assert moves(sessions) == []


@pytest.mark.parametrize("session", [0, 30, 59])
def test_single_outlier_is_no_change(session):
    sessions = quiet(3)
    sessions[session] += 1.0

    assert moves(sessions) == []


def test_drift_is_found_as_one_drift_over_its_sessions():
    sessions = quiet(4, sd=0.003) + 0.005 * np.clip(np.arange(60) - 29, 0, 20)

    (drift,) = moves(sessions)

    assert abs(drift.first - 30) <= 2
    assert abs(drift.last - 49) <= 2


def test_step_up_and_step_down_are_two_moves():
    sessions = quiet(5, sd=0.002)
    sessions[20:40] += 0.03

    assert moves(sessions) == [Move(20, 20), Move(40, 40)]


def test_small_step_is_found_in_sessions_without_noise():
    sessions = np.zeros(30)
    assert moves(sessions) == []
    sessions[17:] += 1e-3
    assert moves(sessions) == [Move(17, 17)]


def all_cuts(sessions):
    """Yield every way to cut `sessions` sessions into stretches of the least length and more."""
    if sessions >= LEAST_LEVEL:
        yield [0, sessions]
    for last in range(LEAST_LEVEL, sessions - LEAST_LEVEL + 1):
        yield from ([*bounds, sessions] for bounds in all_cuts(last))


@given(st.integers(0, 2**32 - 1), st.integers(6, 26), st.floats(0.01, 5))
def test_cut_is_the_best_of_all_cuts(seed, count, penalty):
    sessions = quiet(seed, count, sd=1.0)

    def cost(bounds):
        stretches = [sessions[start:end] for start, end in itertools.pairwise(bounds)]
        squares = sum(float(np.square(each - each.mean()).sum()) for each in stretches)
        return squares + penalty * len(stretches)

    assert cost(cut(sessions, penalty)) == pytest.approx(min(map(cost, all_cuts(count))))


@pytest.mark.parametrize("count", [1, 2, 3, 11])
def test_too_few_sessions_have_no_move(count):
    assert moves(([0.0] * 6 + [5.0] * 6)[-count:]) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_session_that_is_not_finite_is_refused(value):
    with pytest.raises(ValueError, match="finite"):
        find_moves(np.array([0.0, 0.0, value, 0.0, 0.0]))


@given(st.integers(0, 2**32 - 1), st.floats(-20, 20), st.floats(0.1, 10))
def test_shift_and_scale_do_not_change_the_moves(seed, shift, scale):
    sessions = quiet(seed, 40)
    sessions[25:] += 0.03

    assert moves(scale * sessions + shift) == moves(sessions)


@given(st.integers(0, 2**32 - 1))
def test_reversed_sessions_have_the_same_steps(seed):
    sessions = quiet(seed, 40, sd=0.002)
    sessions[25:] += 0.05

    reversed_sessions = [40 - move.first for move in moves(sessions[::-1])]
    assert sorted(reversed_sessions) == [move.first for move in moves(sessions)]


def test_median_of_three_keeps_steps_and_drops_outliers():
    step, spike = np.array([0.0, 0, 0, 1, 1]), np.array([0.0, 0, 9, 0, 0])

    assert median_of_three(step).tolist() == step.tolist()
    assert median_of_three(spike).tolist() == [0.0] * 5
    assert median_of_three(np.array([0.0, 0, 0, 9])).tolist() == [0.0] * 4


def test_noise_sd_ignores_steps_and_drifts():
    sessions = quiet(6, 1000)
    moved = sessions + 0.001 * np.arange(1000)
    moved[500:] += 1.0

    assert noise_sd(sessions) == pytest.approx(0.01, rel=0.1)
    assert noise_sd(moved) == pytest.approx(noise_sd(sessions), rel=0.05)


def test_efficiency_of_the_sd_is_that_of_a_quantile_of_normal_values():
    values = np.random.default_rng(11).normal(size=(2000, 400))
    spread = np.var([np.log(residual_sd(one)) for one in values])
    of_least_squares = 1 / (2 * 400)

    p, density = 2 * stats.norm.cdf(1) - 1, 2 * stats.norm.pdf(1)
    assert pytest.approx(density**2 / (2 * p * (1 - p)), abs=0.005) == SD_EFFICIENCY
    assert of_least_squares / spread == pytest.approx(SD_EFFICIENCY, rel=0.1)


def test_fit_is_least_squares():
    sessions = quiet(7, 30)
    sessions[10:] += 0.5
    fitted = fit(sessions, [Move(10, 10)])

    assert fitted.sizes[0] == pytest.approx(sessions[10:].mean() - sessions[:10].mean())
    assert fitted.residual[:10] == pytest.approx(sessions[:10] - sessions[:10].mean())
    assert fitted.levels + fitted.residual == pytest.approx(sessions)


def test_split_gain_is_the_decrease_of_the_sum_of_squares():
    sessions = quiet(8, 12)

    def squares(values):
        return float(np.square(values - values.mean()).sum())

    expected = [
        squares(sessions) - squares(sessions[:k]) - squares(sessions[k:])
        for k in range(1, len(sessions))
    ]
    assert split_gain(sessions) == pytest.approx(expected)


def test_place_of_a_clear_step_is_narrow_and_of_a_weak_step_wide():
    clear, weak = quiet(9, sd=0.001), quiet(9, sd=0.015)
    for sessions in (clear, weak):
        sessions[30:] += 0.03

    assert fit(clear, [Move(30, 30)]).place(0) == (30, 30)
    first, last = fit(weak, [Move(30, 30)]).place(0)
    assert first <= 30 <= last
    assert last > first


def test_place_of_a_step_contains_the_true_session_as_often_as_stated():
    held = found = 0
    for seed in range(200):
        sessions = quiet(seed)
        sessions[40:] += 0.03
        fitted = find_moves(sessions)
        if len(fitted.moves) == 1:
            first, last = fitted.place(0)
            found, held = found + 1, held + (first <= 40 <= last)

    assert found >= 180
    assert held >= 0.9 * found
