"""The share of slow launches is compared session by session, by its rank."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.rule.levels import SlowShare, levels_of, slow_share, without_slow_sessions


def share_of(current, launches, baseline, baseline_launches=None):
    return SlowShare(
        current=current,
        current_launches=launches,
        baseline=tuple(baseline),
        baseline_launches=tuple(baseline_launches or [5] * len(baseline)),
    )


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 5), st.integers(5, 9)), max_size=12))
def test_the_chance_is_the_rank_of_the_session_among_all(current, baseline):
    """A permutation test whose statistic is the share: as extreme sessions ÷ all sessions."""
    share = share_of(current, 5, [slow for slow, _ in baseline], [n for _, n in baseline])

    shares = [current / 5, *(slow / launches for slow, launches in baseline)]
    ranks = stats.rankdata([-share for share in shares], method="max")
    assert share.chance == pytest.approx(ranks[0] / len(shares))
    assert share.is_largest is bool(ranks[0] == 1)


@pytest.mark.parametrize("clustered", [0.0, 0.3, 1.0])
def test_a_session_is_the_largest_as_rarely_as_its_rank_states(clustered):
    """However slow launches cluster by session, one of n + 1 alike sessions has the largest."""
    random, trials, sessions = np.random.default_rng(5), 4000, 9
    largest = 0
    for _ in range(trials):
        mood = random.beta(0.6, 1.4, sessions)
        slow = random.binomial(5, clustered * mood + (1 - clustered) * 0.3)
        largest += share_of(int(slow[-1]), 5, slow[:-1].tolist()).is_largest
    # Ties count against it, so the share is at most 1 ÷ 9.
    assert stats.binomtest(largest, trials, 1 / sessions, alternative="greater").pvalue > 0.001
    assert largest > trials / sessions / 4


@pytest.mark.parametrize(("baseline", "expected"), [([0] * 8, 1 / 9), ([0, 5, 1, 5], 3 / 5)])
def test_chance_that_all_launches_are_slow_counts_the_sessions_that_were(baseline, expected):
    assert share_of(0, 5, baseline).chance_of_all == pytest.approx(expected)


def test_a_session_without_a_slow_launch_is_as_large_as_any_other_without():
    share = share_of(0, 5, [0] * 8)

    assert share.chance == 1
    assert not share.is_largest


def test_slow_launches_are_counted_by_session_and_a_slow_session_counts_as_a_whole():
    sessions = [[1.0, 1.002, 0.998] for _ in range(9)]
    for session, launch in ((0, 0), (1, 1), (2, 0), (4, 1), (6, 2), (8, 0)):
        sessions[session] = list(sessions[session])
        sessions[session][launch] *= 1.4
    sessions[5] = [1.4 * value for value in sessions[5]]
    levels = levels_of(sessions, 0.02)

    share = slow_share(levels, without_slow_sessions(levels, 8).tolist(), [True] * 8)

    assert (share.current, share.current_launches) == (1, 3)
    assert share.baseline == (1, 1, 1, 0, 1, 3, 1, 0)
    assert share.baseline_launches == (3,) * 8


def test_sessions_that_were_slower_than_their_level_do_not_excuse_slow_launches():
    sessions = [[1.0, 1.002, 0.998, 1.001, 0.999] for _ in range(5)]
    for session in (3, 4):
        sessions[session] = [1.4, 1.402, *sessions[session][2:]]
    levels = levels_of(sessions, 0.02)

    among_all, at_level = (
        slow_share(levels, [True] * 4, mask) for mask in ([True] * 4, [True] * 3 + [False])
    )

    assert (among_all.baseline, among_all.is_largest) == ((0, 0, 0, 2), False)
    assert (at_level.baseline, at_level.is_largest) == ((0, 0, 0), True)
    assert at_level.baseline_launches == (5, 5, 5)
    assert at_level.chance == 1 / 4
