"""The stored sessions by level: a move within the reference, and the error of their median."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.rule.levels import (
    SessionSpread,
    StoredLevels,
    around_level,
    centred,
    groups_of,
    level_variance,
)

PRIOR = SessionPrior(sd=0.005, degrees_of_freedom=30.0)


def stored(logs, *, groups=None, prior=None, launch_noise=0.0):
    return StoredLevels(
        logs=np.asarray(logs, dtype=float),
        groups=np.asarray(groups if groups is not None else np.zeros(len(logs)), dtype=np.int64),
        launch_noise=launch_noise,
        prior=prior,
    )


def find(logs, *, reference=5, smallest=0.0198, level=0.001, **fields):
    return stored(logs, **fields).find_move(reference, smallest=smallest, level=level)


@pytest.mark.parametrize("sessions", range(1, 12))
def test_the_variance_of_the_level_is_that_of_the_median(sessions):
    random = np.random.default_rng(sessions)
    medians = np.median(random.normal(0, 0.01, (200_000, sessions)), axis=1)
    spread = SessionSpread(variance=0.01**2, degrees_of_freedom=20.0)

    stated = level_variance(spread, sessions)

    # From six sessions on it is the limit π/2 n, which is more than the truth.
    assert medians.var() <= stated * 1.02
    assert medians.var() == pytest.approx(stated, rel=0.02 if sessions <= 5 else 0.3)


def test_correlated_sessions_count_as_fewer():
    spread = SessionSpread(variance=1e-4, degrees_of_freedom=20.0, correlation=0.5)

    assert level_variance(spread, 3) == pytest.approx(1.346e-4)  # one independent session


@pytest.mark.parametrize(("move", "after"), [(0.1, 1), (0.1, 2), (0.1, 4), (-0.1, 3)])
def test_a_move_within_the_reference_is_found_where_it_was(move, after):
    logs = np.array([0.001, -0.001, 0.0015, -0.0005, 0.0005, 0.001, -0.001, 0.0])
    logs[after:] += move

    found = find(logs)

    assert found.after == after
    assert found.change == pytest.approx(move, abs=0.002)
    faster = logs[found.faster]
    assert faster == pytest.approx(
        [0.0] * len(faster) if move > 0 else [move] * len(faster), abs=2e-3
    )
    assert len(faster) == (after if move > 0 else 8 - after)
    assert sorted([*faster, *logs[found.slower]]) == sorted(logs)


def test_a_move_after_the_reference_is_a_slow_down_and_none_of_the_reference():
    assert find([0.001, -0.001, 0.0, 0.001, -0.001, 0.1, 0.101, 0.099]) is None


def test_a_move_below_the_smallest_is_none():
    logs = [1e-5, -1e-5, 0.0, 0.0196, 0.01961, 0.01959, 0.0196, 0.01961]

    assert find(logs) is None
    assert find(logs, smallest=0.01).after == 3


def test_sessions_of_an_older_level_are_no_part_of_the_move():
    logs = [0.3, 0.301, 0.299, 0.3, 0.001, -0.001, 0.0, 0.001]

    assert find(logs, groups=[0] * 4 + [1] * 4) is None
    assert find(logs).after == 4


def test_the_move_is_found_at_the_level_of_a_t_test_divided_over_the_places():
    """Two sessions and a prior: one place, and a one-sided test."""
    error = PRIOR.sd * math.sqrt(2)
    limit = stats.t.isf(0.001, PRIOR.degrees_of_freedom) * error

    assert find([0.0, 1.001 * limit], prior=PRIOR, smallest=1e-6).after == 1
    assert find([0.0, 0.999 * limit], prior=PRIOR, smallest=1e-6) is None
    # Three sessions have two places. Both parts have one mean: a third of the freedom is left.
    third = PRIOR.sd**2 * 30 / 31
    heavy = stats.norm.isf(0.001) * stats.t.isf(0.0005, 3) / stats.t.isf(0.001, 3)
    limit = heavy * math.sqrt(third * (1 + 1 / 2))
    assert find([0.0, 1.001 * limit, 1.001 * limit], prior=PRIOR, smallest=1e-6).after == 1
    assert find([0.0, 0.999 * limit, 0.999 * limit], prior=PRIOR, smallest=1e-6) is None


def test_the_move_is_found_with_fewer_degrees_of_freedom_if_no_more_are_known():
    few = SessionPrior(sd=0.005, degrees_of_freedom=4.0)
    limit = stats.t.isf(0.001, 4) * few.sd * math.sqrt(2)

    assert find([0.0, 1.001 * limit], prior=few, smallest=1e-6).after == 1
    assert find([0.0, 0.999 * limit], prior=few, smallest=1e-6) is None


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1], ids=["slower", "faster"])
@pytest.mark.parametrize("sessions", [5, 8])
def test_a_move_is_found_by_chance_at_most_at_its_level_in_each_direction(sessions, sign):
    random, trials = np.random.default_rng(2), 3000

    moves = [
        find(random.normal(0, 0.02, sessions), smallest=1e-9, level=0.02) for _ in range(trials)
    ]

    found = sum(move is not None and sign * move.change > 0 for move in moves)
    assert stats.binomtest(found, trials, 0.02, alternative="greater").pvalue > 0.001


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=12), st.floats(0.0, 0.3))
def test_the_move_is_the_same_whatever_the_unit_and_reversed_for_the_reciprocal(logs, unit):
    values = np.round(logs, 3)
    plain, shifted, mirrored = find(values), find(values + unit), find(-values)

    for other, sign in ((shifted, 1), (mirrored, -1)):
        assert (other is None) is (plain is None)
        if plain is not None:
            assert other.after == plain.after
            assert other.change == pytest.approx(sign * plain.change)


def test_a_split_begins_a_new_level_within_the_newest_one():
    assert stored([0.0] * 6, groups=[0, 0, 1, 1, 1, 1]).split(2).groups.tolist() == [
        *(0, 0, 1, 1),
        *(2, 2),
    ]


def test_each_level_costs_one_degree_of_freedom():
    logs, groups = [0.1, 0.3, 1.0, 1.2, 1.4], [0, 0, 1, 1, 1]

    residuals, df = stored(logs, groups=groups).residuals()

    assert residuals == pytest.approx([-0.1, 0.1, -0.2, 0.0, 0.2])
    assert df == 3


def test_residuals_keep_the_order_of_time_when_levels_interleave():
    logs, groups = [1.0, 5.0, 2.0, 3.0, 7.0], [1, 0, 1, 1, 0]

    residuals, df = stored(logs, groups=groups).residuals()

    assert residuals == pytest.approx([-1.0, -1.0, 0.0, 1.0, 1.0])
    assert df == 3


@pytest.mark.parametrize("sign", [1, -1])
def test_exact_figures_have_a_move_without_an_error(sign):
    logs = sign * np.log([100, 100, 103, 103, 103])

    found = find(logs)

    assert (found.after, found.change) == (2, pytest.approx(sign * math.log(1.03)))


def test_the_clearest_place_over_all_sessions_counts_and_only_within_the_reference():
    """The last session of the reference is high, but the level moved three sessions later."""
    logs = [0.001, -0.001, 0.0, 0.001, 0.04, 0.001, -0.001, *[0.1, 0.101, 0.099] * 3]

    assert find(logs[:5]).after == 4
    assert find(logs) is None
    assert find(logs, reference=8).after == 7


def test_a_drift_is_left_out_of_the_spread_once_there_are_more_than_the_reference():
    line = np.arange(12) * 0.01 + np.tile([1e-5, -1e-5], 6)

    assert around_level(line)[1] == 10
    assert np.abs(around_level(line)[0]).max() < 1e-4
    assert around_level(line[:5])[1] == 4


@pytest.mark.parametrize(
    ("levels", "groups"),
    [
        ((), [0] * 4),
        ((1, 1, 1, 1), [0] * 4),
        ((-2, -1, 0, 3), [0, 1, 2, 3]),
        ((0, 5, 0, 5), [0, 1] * 2),
    ],
)
def test_groups_are_numbered_in_the_order_of_the_levels(levels, groups):
    assert groups_of(levels, 4).tolist() == groups


def test_the_level_in_force_has_the_highest_number_wherever_its_sessions_are():
    """A run of slow sessions within the newest level has a level of its own."""
    logs = [0.0, 0.001, 0.3, 0.301, -0.001, 0.0]

    assert find(logs, groups=[1, 1, 0, 0, 1, 1]) is None
    moved = find([*logs[:4], 0.1, 0.101], groups=[1, 1, 0, 0, 1, 1])
    assert (moved.after, moved.change) == (2, pytest.approx(0.1))


def test_logs_are_centred_by_group():
    found = centred(np.array([1.0, 3.0, 10.0, 20.0, 30.0]), np.array([0, 0, 2, 2, 2]))

    assert found == pytest.approx([-1, 1, -10, 0, 10])
