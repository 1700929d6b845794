"""Intervals of means and ratios, against scipy and by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.interval import Estimate, mean_estimate, ratio_estimate, upper_t

OLD, NEW = [1.0, 1.1, 0.9, 1.0], [2.0, 2.3, 1.9]


def test_upper_t_is_students_quantile_and_the_normal_one_at_infinity():
    assert upper_t(7, 0.001) == pytest.approx(stats.t.isf(0.001, 7))
    assert upper_t(math.inf, 0.001) == pytest.approx(stats.norm.isf(0.001))


def test_mean_has_the_interval_of_students_t():
    found = mean_estimate(OLD)

    error = statistics.stdev(OLD) / 2
    assert found.value == 1.0
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 3, 1.0, error))


def test_single_value_has_no_interval():
    assert mean_estimate([3.0]) == Estimate(value=3.0)
    assert ratio_estimate([2.0], NEW) == Estimate(value=pytest.approx(1.0303, abs=1e-3))


def test_ratio_has_welchs_interval_of_the_logs():
    found = ratio_estimate(OLD, NEW)

    welch = stats.ttest_ind(np.log(NEW), np.log(OLD), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(welch.low), np.exp(welch.high)))


def test_equal_values_have_an_exact_ratio_and_zero_has_none():
    assert ratio_estimate([1.0, 1.0], [2.0, 2.0]) == Estimate(value=2.0, low=2.0, high=2.0)
    assert ratio_estimate([0.0, 1.0], [1.0, 1.0]) is None
