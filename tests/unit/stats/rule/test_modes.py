"""The separation of launches into a fast and a slow mode."""

import numpy as np
import pytest

from ddp_perf.stats.rule.levels import levels_of, levels_of_logs, without_slow_sessions

SLOW = np.log(1.4)


def logs(sessions, launches, *, sd=0.006, seed=0):
    return np.random.default_rng(seed).normal(0, sd, (sessions, launches))


def test_launches_in_one_mode_are_not_split():
    split = sum(
        levels_of_logs(list(logs(9, 5, sd=0.05, seed=seed)), smallest_gap=0.02).slow_gap > 0
        for seed in range(200)
    )
    assert split <= 4


def test_levels_of_one_mode_are_plain_means_and_pooled_variance():
    sessions = [np.array([0.0, 0.01]), np.array([0.02]), np.array([0.0, 0.01, 0.02])]
    levels = levels_of_logs(sessions, smallest_gap=0.02)
    assert levels.fast == pytest.approx([0.005, 0.02, 0.01])
    assert levels.launch_df == 3
    assert levels.launch_variance == pytest.approx((2 * 0.005**2 + 2 * 0.01**2) / 3)


def test_slow_launches_do_not_change_the_level():
    plain = logs(9, 5)
    slow = np.zeros((9, 5), dtype=bool)
    slow[[0, 2, 2, 5, 8], [1, 0, 3, 4, 2]] = True
    levels = levels_of_logs(list(plain + SLOW * slow), smallest_gap=0.02)
    assert levels.slow_launches.tolist() == slow.sum(axis=1).tolist()
    assert levels.slow_gap == pytest.approx(SLOW, abs=0.02)
    expected = [row[~mask].mean() for row, mask in zip(plain, slow, strict=True)]
    assert levels.fast == pytest.approx(expected)


def test_an_outlier_does_not_hide_the_slow_mode():
    sessions = logs(9, 5)
    sessions[[0, 2, 3, 5, 8], [1, 0, 3, 4, 2]] += SLOW
    sessions[4, 4] += 3.0
    levels = levels_of_logs(list(sessions), smallest_gap=0.02)
    assert levels.slow_launches.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 1]


def test_modes_nearer_than_the_tolerance_are_one():
    sessions = logs(9, 5, sd=0.0001)
    sessions[:, 0] += 0.01
    assert levels_of_logs(list(sessions), smallest_gap=0.02).slow_gap == 0
    assert levels_of_logs(list(sessions), smallest_gap=0.005).slow_gap > 0


def test_a_session_whose_launches_were_all_slow_is_recognised():
    sessions = logs(9, 3)
    sessions[[0, 2, 4, 7, 8, 1], [0, 1, 0, 2, 1, 1]] += SLOW
    sessions[5] += SLOW
    levels = levels_of_logs(list(sessions), smallest_gap=0.02)
    assert without_slow_sessions(levels, 8).tolist() == [True] * 5 + [False] + [True] * 2


def test_a_high_session_is_kept_if_slow_launches_are_rare():
    sessions = logs(9, 5)
    sessions[0, 0] += SLOW
    sessions[5] += SLOW
    levels = levels_of_logs(list(sessions), smallest_gap=0.02)
    assert without_slow_sessions(levels, 8).all()


def test_the_launches_of_several_judged_sessions_vary_around_their_own_sessions():
    sessions = [[1.0, 1.02, 0.98], [1.1, 1.11], [1.2, 1.25, 1.22], [1.0, 1.04]]

    levels = levels_of(sessions, 0.5, judged=2)

    own = [np.log(session) - np.mean(np.log(session)) for session in sessions]
    assert (levels.stored_df, levels.own_df) == (3, 3)
    assert levels.own_variance == pytest.approx(sum(map(np.vdot, own[2:], own[2:])) / 3)
    assert levels.stored_variance == pytest.approx(sum(map(np.vdot, own[:2], own[:2])) / 3)
