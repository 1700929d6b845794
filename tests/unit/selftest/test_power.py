"""Shares with their intervals, and the modelled power, against oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.selftest.power import PowerModel, Spread, share_found, spread_of
from ddp_perf.stats.rule.comparison import Comparison
from ddp_perf.stats.rule.inputs import typical_values
from ddp_perf.stats.rule.judge import judge_launches
from tests.unit.stats.rule.machine import simulated_sessions

TOLERANCE, LEVEL = 0.02, 0.001


def model(error=0.01, df=7.0, tolerance=TOLERANCE, least_error=0.0):
    return PowerModel(
        standard_error=error,
        least_error=least_error,
        degrees_of_freedom=df,
        tolerance=tolerance,
        level=LEVEL,
    )


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_that_of_clopper_and_pearson(counts):
    found, trials = counts
    exact = stats.binomtest(found, trials).proportion_ci(0.95, method="exact")
    assert share_found(found, trials).interval == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_the_interval_covers_the_true_rate_at_least_95_times_in_100(rate):
    trials = 11
    covered = sum(
        stats.binom.pmf(found, trials, rate)
        for found in range(trials + 1)
        if share_found(found, trials).interval[0] <= rate <= share_found(found, trials).interval[1]
    )
    assert covered >= 0.95


def test_without_a_trial_the_interval_is_0_to_1():
    assert share_found(0, 0).value is None
    assert share_found(0, 0).interval == (0.0, 1.0)
    assert share_found(0, 0).chance(0.01) == 1.0


@pytest.mark.parametrize(("found", "trials"), [(2, 1), (-1, 3), (0, -1)])
def test_an_impossible_count_is_refused(found, trials):
    with pytest.raises(ValueError, match=f"found {found} of {trials}"):
        share_found(found, trials)


def test_the_chance_is_the_binomial_tail():
    for found in range(8):
        expected = stats.binomtest(found, 7, 0.03, alternative="greater").pvalue
        assert share_found(found, 7).chance(0.03) == pytest.approx(expected)


def test_without_tolerance_the_power_is_that_of_the_noncentral_t():
    slow_downs = np.array([0.0, 0.03, 0.06, 0.1])
    expected = stats.nct.sf(stats.t.isf(LEVEL, 7), 7, np.log1p(slow_downs) / 0.01)
    found = model(tolerance=1e-9).power(slow_downs)
    assert found == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("error", [0.002, 0.006, 0.012, 0.03])
def test_the_power_agrees_with_a_simulation_of_the_rule(error):
    """Simulate differences and estimates of their error, and judge each with `Comparison`."""
    random, df, draws = np.random.default_rng(7), 5, 4000
    for slow_down in (0.0, 0.03, 0.08):
        differences = random.normal(math.log1p(slow_down), error, draws)
        estimates = error * np.sqrt(random.chisquare(df, draws) / df)
        found = sum(
            Comparison(
                difference=difference,
                standard_error=estimate,
                degrees_of_freedom=df,
                tolerance=TOLERANCE,
            ).slower(LEVEL)
            for difference, estimate in zip(differences, estimates, strict=True)
        )
        (power,) = model(error, df).power(np.array([slow_down]))
        assert found / draws == pytest.approx(power, abs=4.5 * math.sqrt(0.25 / draws))


@pytest.mark.parametrize(
    ("session", "launch", "sessions", "slow_down"),
    [
        pytest.param(0.006, 0.008, 5, 0.05, id="few sessions"),
        pytest.param(0.006, 0.008, 8, 0.03, id="many sessions"),
        pytest.param(0.02, 0.01, 8, 0.10, id="sessions differ"),
        pytest.param(0.002, 0.03, 5, 0.10, id="launches differ"),
        pytest.param(0.0, 0.04, 8, 0.10, id="only launches differ"),
    ],
)
def test_the_model_predicts_what_the_judge_finds(session, launch, sessions, slow_down):
    """The agreement is to 6 points: the judge also corrects for correlation, at some power."""
    trials = 1000
    drawn = simulated_sessions(trials * (sessions + 1), seed=3, session=session, launch=launch)
    found = 0
    for trial in range(trials):
        *baseline, last = drawn[trial * (sessions + 1) : (trial + 1) * (sessions + 1)]
        current = [[value * (1 + slow_down) for value in values] for values in last]
        verdict = judge_launches(
            current, baseline, tolerance=TOLERANCE, alpha=LEVEL, reference=REFERENCE_SESSIONS
        )
        found += verdict.outcome is Outcome.REGRESSION
    modelled = Spread(launch=launch, session=session).model(
        launches=5, sessions=sessions, tolerance=TOLERANCE, level=LEVEL
    )
    assert found / trials == pytest.approx(modelled.power(np.array([slow_down]))[0], abs=0.06)


def test_power_rises_with_the_slow_down_to_one():
    power = model().power(np.linspace(0, 1, 50))
    assert (np.diff(power) >= 0).all()
    assert power[-1] == pytest.approx(1.0)


def test_the_error_is_never_estimated_below_the_part_of_the_launches():
    slow_down = np.array([0.06])
    assert model(least_error=0.01).power(slow_down) < model().power(slow_down)


def test_detectable_is_where_the_power_reaches_nine_tenths():
    found = model().detectable()
    below, above = model().power(np.array([found - 0.001, found]))
    assert below < 0.9 <= above


def test_nothing_is_detectable_where_the_error_has_no_bound():
    assert model(error=100.0, df=1.0).detectable() is None


def test_equal_session_means_leave_only_the_tolerance():
    still = Spread(launch=0.0, session=0.0)
    modelled = still.model(launches=5, sessions=3, tolerance=0.1, level=LEVEL)
    assert modelled.power(np.array([0.09, 0.11])) == pytest.approx([0.0, 1.0])


def test_more_launches_help_until_the_variance_between_sessions_dominates():
    options = {"sessions": 8, "tolerance": TOLERANCE, "level": LEVEL}
    noisy = Spread(launch=0.03, session=0.002)
    assert noisy.model(launches=10, **options).detectable() < 0.8 * (
        noisy.model(launches=5, **options).detectable()
    )
    floor = Spread(launch=0.001, session=0.02)
    assert floor.model(launches=10, **options).detectable() == pytest.approx(
        floor.model(launches=5, **options).detectable(), rel=0.01
    )


def test_the_spread_of_a_simulated_machine_is_estimated():
    drawn = simulated_sessions(400, seed=5, session=0.02, launch=0.01)
    spread = spread_of([typical_values(session) for session in drawn], TOLERANCE)
    assert spread.launch == pytest.approx(0.01, rel=0.1)
    assert spread.session == pytest.approx(0.02, rel=0.1)


def test_slow_launches_do_not_add_to_the_spread():
    drawn = simulated_sessions(60, seed=5, session=0.002, launch=0.005, slow_share=0.2)
    figures = [typical_values(session) for session in drawn]
    assert spread_of(figures, TOLERANCE).launch == pytest.approx(0.005, rel=0.2)


def test_sessions_that_differ_only_by_their_launches_have_no_spread():
    drawn = [[1.0, 1.1], [1.1, 1.0], [1.0, 1.1]]
    assert spread_of(drawn, TOLERANCE).session == 0.0
