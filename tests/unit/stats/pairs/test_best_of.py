"""The probability that a setting is the best: against Student's t, and its symmetries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.pairs import best_chances


def blocks_of(shifts, blocks: int, sd: float, seed: int = 1):
    random = np.random.default_rng(seed)
    table = random.normal(0, 0.5, (blocks, 1)) + random.normal(0, sd, (blocks, len(shifts)))
    return (table + np.array(shifts)).tolist()


@pytest.mark.parametrize("shift", [-0.03, 0.0, 0.02, 0.05])
def test_of_two_settings_it_is_that_of_numerical_integration(shift):
    """Integrate over the difference, the sd of a pair's difference, and that of the settings."""
    blocks = blocks_of([0.0, shift], 6, 0.04)
    logs = np.array([b - a for a, b in blocks])
    sds = np.geomspace(0.005, 0.5, 150)[:, None]
    shifts = np.linspace(-0.5, 0.5, 1000)
    likelihood = np.exp(stats.norm.logpdf(logs[:, None, None], shifts, sds).sum(axis=0)).sum(axis=0)
    prior = sum(
        stats.norm.pdf(shifts, 0, math.sqrt(2) * sd) for sd in np.geomspace(0.001, 0.3, 100)
    )
    posterior = likelihood * prior

    expected = posterior[shifts > 0].sum() / posterior.sum()
    assert best_chances(blocks)[0] == pytest.approx(expected, abs=0.02)


def test_the_luckiest_of_many_equal_settings_does_not_seem_the_best():
    """Each is the best one time in eight. With a flat prior, about one half would be stated."""
    random = np.random.default_rng(3)
    tables = random.normal(0, 0.03, (30, 6, 8))

    assert np.mean([max(best_chances(table.tolist())) for table in tables]) < 0.4


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=3, max_size=3),
        min_size=2,
        max_size=6,
    ),
    st.floats(-5, 5),
)
def test_chances_sum_to_one_and_what_a_block_shares_changes_none(blocks, shift):
    chances = best_chances(blocks)
    shifted = best_chances(
        [[log + shift * number for log in row] for number, row in enumerate(blocks)]
    )

    assert math.fsum(chances) == pytest.approx(1)
    assert shifted == pytest.approx(chances, abs=0.02)


def test_a_dropped_setting_keeps_the_chance_of_the_blocks_it_was_in():
    full = blocks_of([0.0, 0.01, 0.04], 4, 0.03)
    more = [[a, b, None] for a, b, _ in blocks_of([0.0, 0.01, 0.04], 12, 0.03, seed=2)]

    before, after = best_chances(full), best_chances(full + more)

    assert math.fsum(after) == pytest.approx(1)
    assert 0 < after[2] < before[2] + 0.1
    assert max(after[:2]) > 0.5


def test_equal_settings_are_as_likely():
    assert best_chances([[0.5, 0.5]] * 4) == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("blocks", [[[0.0, 1.0]], [[0.0, None], [None, 1.0], [0.0, None]]])
def test_without_a_spread_each_setting_is_as_likely(blocks):
    assert best_chances(blocks) == (0.5, 0.5)


@pytest.mark.parametrize(
    "blocks", [[], [[]], [[0.0, 1.0], [0.0]], [[0.0, None]], [[0.0, math.nan]], [[0.0, math.inf]]]
)
def test_blocks_that_are_no_table_are_an_error(blocks):
    with pytest.raises(ValueError, match="each"):
        best_chances(blocks)
