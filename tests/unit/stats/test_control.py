"""The slope of the case on the control."""

import numpy as np
import pytest

from ddp_perf.stats.control import fit_slope


def centred(values):
    return np.asarray(values) - np.mean(values)


def nights(slope, *, seed, control_sd=0.03, own_sd=0.005, n=8):
    random = np.random.default_rng(seed)
    control = random.normal(0, control_sd, n)
    return centred(slope * control + random.normal(0, own_sd, n)), centred(control)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_slope_is_found_where_the_control_moves(slope):
    found = [fit_slope(*nights(slope, seed=seed)).mean for seed in range(50)]
    assert np.mean(found) == pytest.approx(slope, abs=0.06)


def test_control_that_only_adds_noise_is_shrunken_away():
    random = np.random.default_rng(0)
    slopes = [
        fit_slope(centred(random.normal(0, 0.005, 8)), centred(random.normal(0, 0.05, 8))).mean
        for _ in range(50)
    ]
    assert np.mean(slopes) < 0.02


def test_control_that_never_moved_says_nothing():
    slope = fit_slope(centred(np.random.default_rng(0).normal(0, 0.005, 8)), np.zeros(8))
    assert slope.mean == pytest.approx(0.375)  # the prior's
    assert slope.variance == pytest.approx(0.19, abs=0.01)


def test_residual_holds_the_uncertainty_of_the_slope():
    levels, control = nights(0.5, seed=3)
    slope = fit_slope(levels, control)
    plain = levels - slope.mean * control
    assert slope.residual @ slope.residual >= plain @ plain


def test_night_that_follows_exactly_leaves_nothing():
    _, control = nights(1.0, seed=1)
    slope = fit_slope(control, control)
    assert slope.mean == pytest.approx(1.0, abs=1e-6)
    assert slope.residual == pytest.approx(np.zeros(8), abs=1e-6)
    assert fit_slope(np.zeros(1), np.zeros(1)).mean == pytest.approx(0.375)
