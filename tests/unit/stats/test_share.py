"""Shares with their intervals, against oracles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.interval import share_found


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
