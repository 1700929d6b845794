"""The slope of the case on the control."""

import math

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import ControlSlope, currents_move, fit_slope


def centred(values):
    return np.asarray(values) - np.mean(values)


def sessions(slope, *, seed, control_sd=0.03, own_sd=0.005, n=8):
    random = np.random.default_rng(seed)
    control = random.normal(0, control_sd, n)
    return centred(slope * control + random.normal(0, own_sd, n)), centred(control)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_slope_is_found_if_the_control_moves(slope):
    found = [fit_slope(*sessions(slope, seed=seed)).mean for seed in range(50)]
    assert np.mean(found) == pytest.approx(slope, abs=0.06)


def test_slope_is_near_zero_if_the_control_only_adds_noise():
    random = np.random.default_rng(0)
    slopes = [
        fit_slope(centred(random.normal(0, 0.005, 8)), centred(random.normal(0, 0.05, 8))).mean
        for _ in range(50)
    ]
    assert np.mean(slopes) < 0.02


def test_slope_keeps_its_prior_if_the_control_never_moved():
    slope = fit_slope(centred(np.random.default_rng(0).normal(0, 0.005, 8)), np.zeros(8))
    assert slope.mean == pytest.approx(0.375)  # the prior's
    assert slope.variance == pytest.approx(0.19, abs=0.01)


def test_the_scale_widens_the_residuals_to_their_mean_over_all_slopes():
    levels, control = sessions(0.5, seed=3)
    slope = fit_slope(levels, control)

    slopes = np.linspace(0, 1, 41)
    squares = np.array([np.sum((levels - b * control) ** 2) for b in slopes])
    weight = np.array([0.5, *[0.25 / 39] * 39, 0.25]) * squares**-3.5
    weight /= weight.sum()
    plain = np.sum((levels - (weight @ slopes) * control) ** 2)
    assert slope.mean == pytest.approx(weight @ slopes)
    assert slope.scale == pytest.approx(math.sqrt(weight @ squares / plain))
    assert slope.scale > 1


def test_the_scale_is_one_if_the_case_follows_exactly():
    _, control = sessions(1.0, seed=1)
    slope = fit_slope(control, control)

    assert slope.mean == pytest.approx(1.0, abs=1e-6)
    assert slope.scale == 1.0
    assert fit_slope(np.zeros(1), np.zeros(1)).mean == pytest.approx(0.375)


MOVES = centred([0.01, -0.01, 0.02, -0.02, 0.005, -0.005])
# Of one more session of that spread: 0.1 % of them lie further off, on either side.
FAR = stats.t.isf(0.001, 5) * MOVES.std(ddof=1) * math.sqrt(1 + 1 / 6)


def slope_of(mean, variance):
    return ControlSlope(mean=mean, variance=variance, scale=1.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_control_move_within_what_the_sessions_show_uses_the_fitted_slope(sign):
    move = currents_move(slope_of(0.8, 0.04), MOVES, sign * 0.99 * FAR, levels=1, reference=6)

    assert not move.beyond
    assert move.shift == pytest.approx(sign * 0.99 * FAR)
    assert move.explained == pytest.approx(0.8 * move.shift)
    assert move.variance == pytest.approx(0.04 * move.shift**2)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_control_move_beyond_all_sessions_is_as_unknown_as_before_any_session(sign):
    move = currents_move(slope_of(0.8, 0.04), MOVES, sign * 1.01 * FAR, levels=1, reference=6)

    assert move.beyond
    assert move.explained == pytest.approx(0.375 * move.shift)  # the prior's mean
    assert move.variance == pytest.approx(0.19 * move.shift**2, rel=0.05)


def test_one_session_cannot_show_that_a_move_is_beyond_it():
    assert not currents_move(slope_of(0.375, 0.19), np.zeros(1), 5.0, levels=1, reference=1).beyond


@pytest.mark.parametrize(("levels", "reference"), [(1, 6), (1, 2), (2, 6), (3, 3)])
def test_a_move_is_beyond_by_the_spread_around_the_levels_and_the_error_of_the_reference(
    levels, reference
):
    df = len(MOVES) - levels
    sd = math.sqrt(float(MOVES @ MOVES) / df * (1 + 1 / reference))
    far = float(stats.t.isf(0.001, df)) * sd

    def beyond(shift):
        slope = slope_of(0.8, 0.04)
        return currents_move(slope, MOVES, shift, levels=levels, reference=reference).beyond

    assert not beyond(0.99 * far)
    assert beyond(1.01 * far)


def test_as_many_levels_as_sessions_cannot_show_that_a_move_is_beyond_them():
    slope = slope_of(0.375, 0.19)

    assert not currents_move(slope, np.zeros(3), 5.0, levels=3, reference=1).beyond
