"""The ratios of paired launches: their intervals, and when there is none."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.interval import ratio_of_means, ratio_of_positive

BOTH = [ratio_of_positive, ratio_of_means]


@pytest.mark.parametrize("ratio", BOTH)
def test_what_both_launches_of_a_pair_share_widens_no_interval(ratio):
    base = [1.0, 1.1, 1.4]

    found = ratio([2 * value for value in base], base)

    assert found.ratio == pytest.approx(2.0)
    assert found.interval == pytest.approx((2.0, 2.0))
    assert found.pairs == 3


def test_against_a_constant_base_the_interval_of_means_is_that_of_student():
    values = [3.0, 3.4, 2.9, 3.1]
    margin = stats.t.ppf(0.975, 3) * statistics.stdev(values) / math.sqrt(4)

    found = ratio_of_means(values, [2.0] * 4)

    mean = statistics.fmean(values)
    assert found.interval == pytest.approx(((mean - margin) / 2, (mean + margin) / 2))


def test_the_interval_of_positive_figures_is_that_of_their_logarithms():
    logs = [0.1, 0.4, 0.3]
    margin = stats.t.ppf(0.975, 2) * statistics.stdev(logs) / math.sqrt(3)

    found = ratio_of_positive([2 * math.exp(log) for log in logs], [2.0] * 3)

    mean = statistics.fmean(logs)
    assert found.ratio == pytest.approx(math.exp(mean))
    assert found.interval == pytest.approx((math.exp(mean - margin), math.exp(mean + margin)))


@pytest.mark.parametrize(("mean", "launches"), [(0.3, 5), (0.0, 5), (-0.1, 10)])
def test_the_interval_of_means_covers_the_true_ratio_in_95_of_100_sessions(mean, launches):
    """The base is 1 ± 0.1; both share a disturbance of ± 0.1."""
    random, trials, covered = np.random.default_rng(5), 3000, 0
    for _ in range(trials):
        shared = random.normal(0, 0.1, launches)
        base = 1 + shared + random.normal(0, 0.1, launches)
        own = mean * (1 + shared) + random.normal(0, 0.1, launches)
        low, high = ratio_of_means(own.tolist(), base.tolist()).interval
        covered += low <= mean <= high

    assert covered / trials == pytest.approx(0.95, abs=0.014)  # 3.5 standard errors


@pytest.mark.parametrize("ratio", BOTH)
def test_one_pair_has_no_interval(ratio):
    found = ratio([3.0], [2.0])

    assert found.ratio == pytest.approx(1.5)
    assert (found.interval, found.pairs) == (None, 1)


@pytest.mark.parametrize("ratio", BOTH)
def test_without_a_pair_there_is_no_ratio(ratio):
    assert ratio([], []) is None


@pytest.mark.parametrize(
    ("values", "base"),
    [([1.0], [0.0]), ([1.0, 1.0], [-0.1, 0.05]), ([1.0, 1.0], [0.01, 0.5])],
    ids=["zero", "negative", "not distinguished from zero"],
)
def test_there_is_no_ratio_to_a_mean_that_may_be_zero(values, base):
    assert ratio_of_means(values, base) is None
