"""Conclusions from a difference and its error."""

import math

import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import PASS_LEVEL, Comparison, upper_t


def comparison(difference=0.0, error=0.006, df=7.0, tolerance=0.02):
    return Comparison(
        difference=difference, standard_error=error, degrees_of_freedom=df, tolerance=tolerance
    )


def test_upper_t_is_students_quantile_and_the_normal_one_at_infinity():
    assert upper_t(7, 0.001) == pytest.approx(stats.t.isf(0.001, 7))
    assert upper_t(math.inf, 0.001) == pytest.approx(stats.norm.isf(0.001))


def test_critical_value_is_at_least_the_tolerance():
    assert comparison(error=0.0).critical(0.001) == pytest.approx(math.log(1.02))


def test_moderation_vanishes_against_noisy_or_well_known_sessions():
    noisy = comparison(error=0.5)
    assert noisy.critical(0.001) == pytest.approx(0.5 * stats.t.isf(0.001, 7), rel=0.01)
    certain = comparison(df=math.inf, error=0.02)
    assert certain.critical(0.001) == pytest.approx(0.02 * stats.norm.isf(0.001))


@pytest.mark.parametrize("sessions", [3, 5, 8, 12])
def test_false_alarms_at_worst_over_all_session_sds(sessions):
    """Integrated over the estimate of the sd: 2.6 times the level, as the docstring states."""
    df, level = sessions - 1, 0.001
    quantiles = stats.chi2.ppf([(i + 0.5) / 2000 for i in range(2000)], df)
    worst = 0.0
    for sd in (0.002, 0.004, 0.006, 0.008, 0.01, 0.014, 0.02, 0.05):
        alarms = [
            stats.norm.sf(comparison(error=sd * math.sqrt(q / df), df=df).critical(level) / sd)
            for q in quantiles[::10]
        ]
        worst = max(worst, sum(alarms) / len(alarms))
    assert level < worst < 2.65 * level


def test_pass_needs_the_upper_bound_below_twice_the_tolerance():
    margin = stats.t.isf(0.005, 7) * 0.006
    limit = math.log(1.04) - margin
    assert comparison(difference=limit - 1e-9).passes(PASS_LEVEL)
    assert not comparison(difference=limit + 1e-9).passes(PASS_LEVEL)


def test_interval_and_minimum_detectable_stay_finite_without_any_estimate():
    lost = comparison(error=1e6, df=1)
    assert 0 < lost.interval[0] < lost.interval[1] < math.inf
    assert lost.minimum_detectable(0.001) < math.inf
