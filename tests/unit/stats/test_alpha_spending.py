"""Alpha spending, against published bounds and by simulation."""

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.error_rate import alpha_per_metric
from ddp_perf.stats.sequential import look_levels


def test_alpha_of_all_metrics_adds_up_to_the_false_alarm_rate():
    assert alpha_per_metric(0.01, 40) * 40 == pytest.approx(0.01)
    assert alpha_per_metric(0.01, 0) == 0.01


@pytest.mark.parametrize(("rate", "metrics"), [(0.0, 3), (0.5, 3), (0.01, -1)])
def test_false_alarm_rate_out_of_range_is_an_error(rate, metrics):
    with pytest.raises(ValueError, match="not"):
        alpha_per_metric(rate, metrics)


def test_look_bounds_equal_the_published_ones():
    """Lan–DeMets, Pocock-type spending, five equal looks, one-sided 0.025 (R's gsDesign)."""
    bounds = stats.norm.isf(look_levels(0.025, [1, 2, 3, 4, 5]))
    assert bounds == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=0.001)


def test_one_look_has_the_whole_alpha():
    assert look_levels(0.001, [5]) == pytest.approx((0.001,))


def test_all_looks_together_raise_false_alarms_at_alpha():
    launches = [5, 8, 12, 20]
    random = np.random.default_rng(2)
    sums = np.cumsum(random.normal(size=(100_000, 20)), axis=1)
    z = np.stack([sums[:, k - 1] / np.sqrt(k) for k in launches])
    alarms = (z > stats.norm.isf(look_levels(0.02, launches))[:, None]).any(axis=0).mean()
    assert alarms == pytest.approx(0.02, abs=0.0015)


def test_looks_of_equal_information_have_nearly_the_whole_alpha_each():
    """If launches add no information, all looks raise a false alarm together or not at all."""
    assert all(level > 0.5 * 0.001 for level in look_levels(0.001, [1.0, 1.0]))


@pytest.mark.parametrize(
    ("alpha", "information"),
    [(0.01, []), (0.01, [5, 4]), (0.01, [0, 1]), (0.01, [1, float("nan")]), (0.6, [5])],
)
def test_looks_out_of_range_are_an_error(alpha, information):
    with pytest.raises(ValueError, match="must"):
        look_levels(alpha, information)
