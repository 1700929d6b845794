"""The share of slow launches, against scipy and by counting."""

import itertools

import pytest
from scipy import stats

from ddp_perf.stats.rule.modes import SlowShare


@pytest.mark.parametrize(("now", "k", "before", "n"), [(3, 5, 0, 40), (2, 5, 12, 40), (0, 5, 3, 9)])
def test_p_value_of_the_slow_share_is_fishers(now, k, before, n):
    share = SlowShare(current=now, current_launches=k, baseline=before, baseline_launches=n)
    table = [[now, k - now], [before, n - before]]
    assert share.p_value == pytest.approx(stats.fisher_exact(table, "greater").pvalue)


def test_chance_that_all_launches_are_slow_is_beta_binomial():
    for k, before in itertools.product((1, 3, 5), (0, 4, 12)):
        share = SlowShare(current=0, current_launches=k, baseline=before, baseline_launches=40)
        expected = stats.betabinom.pmf(k, k, before + 0.5, 40 - before + 0.5)
        assert share.chance_of_all == pytest.approx(expected)


def test_p_value_is_one_without_a_slow_launch():
    share = SlowShare(current=0, current_launches=5, baseline=0, baseline_launches=40)
    assert share.p_value == 1
    assert not share.any_slow
