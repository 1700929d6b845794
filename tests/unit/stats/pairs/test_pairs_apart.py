"""Pairs that lie apart: Rosner's test, and how many pairs may be set apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.pairs import most_apart, without_apart

LOGS = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=4, max_size=12)


def rosner(values, most, level=0.001):
    """Return how many outliers there are, by the formulas of the paper, from all values anew."""
    rest, outliers = list(values), 0
    for taken in range(1, most + 1):
        centre, sd = np.mean(rest), np.std(rest, ddof=1)
        farthest = max(range(len(rest)), key=lambda place: abs(rest[place] - centre))
        count = len(values) - taken
        t = stats.t.isf(level / (2 * (count + 1)), count - 1)
        if abs(rest[farthest] - centre) / sd > count * t / np.sqrt(
            (count - 1 + t**2) * (count + 1)
        ):
            outliers = taken
        del rest[farthest]
    return outliers


@pytest.mark.parametrize("seed", range(20))
def test_outliers_are_those_of_rosners_formulas(seed):
    random = np.random.default_rng(seed)
    logs = random.normal(0, 0.02, 18) + 0.3 * (random.random(18) < 0.1)

    assert len(logs) - len(without_apart(logs, 5)) == rosner(logs, 5)


def test_two_launches_in_a_slow_mode_do_not_hide_each_other():
    logs = np.array([0.01, -0.02, 0.3, 0.0, 0.31, 0.015, -0.01, 0.02, -0.015, 0.005])

    assert sorted(without_apart(logs, 2)) == sorted(log for log in logs if log < 0.1)
    assert len(without_apart(logs, 0)) == 10


@given(LOGS, st.integers(0, 4))
def test_what_is_kept_is_the_middle_and_at_least_three(logs, most):
    kept = without_apart(np.array(logs), most)

    assert len(kept) >= max(3, len(logs) - most)
    assert set(kept) <= set(logs)


def test_equal_pairs_lose_none():
    assert len(without_apart(np.full(6, 0.1), 2)) == 6


@pytest.mark.parametrize(("pairs", "level"), [(6, 0.0025), (9, 0.0025), (14, 0.0025), (6, 0.01)])
def test_as_many_may_be_apart_as_two_even_modes_do_not_explain(pairs, level):
    """All 4 ** n outcomes of two launches in one of two modes, for the few that can be counted."""
    most = most_apart(pairs, level)

    chance = stats.binom.sf(pairs - most - 1, pairs, 1 / 4)
    assert chance <= level
    assert most == pairs // 3 or stats.binom.sf(pairs - most - 2, pairs, 1 / 4) > level


def test_no_law_has_one_difference_more_often_than_once_in_four():
    """Laws on a grid of four levels, in steps of a twelfth, and the difference of one level."""
    laws = (law for law in itertools.product(range(13), repeat=4) if sum(law) == 12)

    assert max(sum(a * b for a, b in itertools.pairwise(law)) / 144 for law in laws) == 1 / 4


def test_few_pairs_at_a_low_level_are_not_enough():
    assert most_apart(3, 0.0025) is None
    assert most_apart(5, 0.0025) == 0
