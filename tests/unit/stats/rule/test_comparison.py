"""Conclusions from a difference and its error."""

import math

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import PASS_LEVEL, Comparison


def comparison(difference=0.0, error=0.006, df=7.0, tolerance=0.02):
    return Comparison(
        difference=difference, standard_error=error, degrees_of_freedom=df, tolerance=tolerance
    )


def test_critical_value_is_at_least_the_tolerance():
    assert comparison(error=0.0).critical(0.001) == pytest.approx(math.log(1.02))


def heavy_tail(level):
    """Return the quantile of Student's t with 3 df, scaled to the normal law at 0.001."""
    return stats.t.isf(level, 3) * stats.norm.isf(0.001) / stats.t.isf(0.001, 3)


@pytest.mark.parametrize("df", [2.0, 5.5, 30.0, math.inf])
@pytest.mark.parametrize("level", [0.05, 0.001])
def test_critical_value_is_students_down_to_one_in_a_thousand(df, level):
    assert comparison(df=df, error=0.05).critical(level) == pytest.approx(
        0.05 * stats.t.isf(level, df)
    )


@pytest.mark.parametrize("level", [0.0009, 1e-4, 1e-6])
def test_critical_value_of_rarer_sessions_has_at_least_a_heavy_tail(level):
    known, few = comparison(df=math.inf, error=0.05), comparison(df=2.0, error=0.05)

    assert known.critical(level) == pytest.approx(0.05 * heavy_tail(level))
    assert few.critical(level) == pytest.approx(0.05 * stats.t.isf(level, 2))


@pytest.mark.parametrize("df", [3.0, 30.0, math.inf])
@pytest.mark.parametrize("p", [0.2, 0.01, 0.0011, 0.0009, 1e-5])
def test_the_chance_is_the_level_at_which_the_difference_is_critical(df, p):
    plain = comparison(df=df, error=0.05, tolerance=1e-9)
    one = comparison(difference=plain.critical(p), error=0.05, df=df)

    assert one.chance == pytest.approx(p)


def test_pass_and_interval_use_all_degrees_of_freedom():
    known = comparison(df=math.inf, error=0.05)

    assert known.margin == pytest.approx(0.05 * stats.norm.isf(PASS_LEVEL))


def false_alarms(df, sd, *, tolerance, level=0.001):
    """Integrate over the estimate of the sd: sd × √(χ²/df) for normal sessions."""
    quantiles = stats.chi2.ppf((np.arange(4000) + 0.5) / 4000, df)
    alarms = [
        stats.norm.sf(
            comparison(error=sd * math.sqrt(q / df), df=df, tolerance=tolerance).critical(level)
            / sd
        )
        for q in quantiles
    ]
    return float(np.mean(alarms))


@pytest.mark.parametrize("df", [2, 4, 7, 11, 40])
@pytest.mark.parametrize("sd", [0.002, 0.006, 0.01, 0.05])
def test_false_alarms_are_at_most_the_level_however_much_sessions_differ(df, sd):
    assert false_alarms(df, sd, tolerance=0.02) <= 0.001 * 1.01


@pytest.mark.parametrize("df", [2, 4, 6])
def test_false_alarms_are_the_level_where_the_tolerance_does_not_matter(df):
    assert false_alarms(df, 0.05, tolerance=1e-9) == pytest.approx(0.001, rel=0.02)


def test_pass_needs_the_upper_bound_below_twice_the_tolerance():
    margin = stats.t.isf(0.005, 7) * 0.006
    limit = math.log(1.04) - margin
    assert comparison(difference=limit - 1e-9).passes(PASS_LEVEL)
    assert not comparison(difference=limit + 1e-9).passes(PASS_LEVEL)


@pytest.mark.parametrize("tolerance", [0.02, 0.05, 0.1])
def test_what_passes_is_what_rules_out_twice_the_tolerance(tolerance):
    for difference in np.linspace(-0.02, 0.2, 60):
        one = comparison(difference=float(difference), tolerance=tolerance)
        assert one.passes(PASS_LEVEL) is (one.upper(PASS_LEVEL) < 1 + 2 * tolerance)
        assert one.upper(PASS_LEVEL) == pytest.approx(one.interval[1])


def test_the_upper_bound_is_below_the_true_ratio_as_rarely_as_promised():
    random, trials, df = np.random.default_rng(11), 20_000, 4
    errors = 0.01 * np.sqrt(random.chisquare(df, trials) / df)
    below = sum(
        comparison(difference=d, error=e, df=df).upper(PASS_LEVEL) < 1.05
        for d, e in zip(random.normal(math.log(1.05), 0.01, trials), errors, strict=True)
    )
    assert stats.binomtest(below, trials, PASS_LEVEL).pvalue > 0.001


def test_interval_and_minimum_detectable_stay_finite_without_any_estimate():
    lost = comparison(error=1e6, df=1)
    assert 0 < lost.interval[0] < lost.interval[1] < math.inf
    assert lost.minimum_detectable(0.001) < math.inf
    assert lost.upper(PASS_LEVEL) < math.inf
