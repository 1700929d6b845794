"""The standard deviation from the median absolute deviation."""

import numpy as np
import pytest

from ddp_perf.stats.robust import robust_sd, sd_of_deviations


def test_robust_sd_of_normal_values_is_their_sd():
    values = np.random.default_rng(0).normal(3.0, 0.2, 4000).tolist()
    assert robust_sd(values) == pytest.approx(0.2, rel=0.05)


def test_robust_sd_is_not_widened_by_a_few_values_far_off():
    assert robust_sd([1.0, 2.0, 3.0, 4.0, 1000.0]) == robust_sd([1.0, 2.0, 3.0, 4.0, 5.0])


def test_robust_sd_is_14826_times_the_median_absolute_deviation():
    assert robust_sd([0.0, 1.0, 3.0]) == pytest.approx(1.4826)
    assert sd_of_deviations([1.0, 0.0, 2.0]) == pytest.approx(1.4826)
