"""The evidence that a commit is slow: against numerical integration, and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ddp_perf.stats.duel.slow_odds import slow_log_odds

BAD = [0.07, 0.11, 0.05, 0.09, 0.12, 0.04]
LOGS = st.lists(st.floats(-0.5, 0.5, allow_subnormal=False), max_size=8)


def likelihood(logs, bad, slow: bool) -> float:
    """Integrate over the spread and the slow-down, which bad alone shows (prior 1 ÷ σ²)."""
    logs, bad = np.array(logs), np.array(bad)
    sds = np.exp(np.linspace(math.log(0.003), math.log(0.8), 200))[:, None]
    shifts = np.linspace(-0.6, 0.8, 701)[None, :]
    prior = np.exp(stats.norm.logpdf(bad[:, None, None], shifts, sds).sum(axis=0))
    means = shifts if slow else np.zeros_like(shifts)
    given_both = np.exp(stats.norm.logpdf(logs[:, None, None], means, sds).sum(axis=0))
    # A grid that is even in ln σ has the weight dσ² ÷ σ², which is the prior.
    return float((prior * given_both).sum() / prior.sum())


@pytest.mark.parametrize(
    "logs", [[0.0], [0.08], [0.03, 0.05], [-0.02, 0.01, 0.0], [0.06, 0.1, 0.09, 0.07]]
)
def test_the_odds_are_those_of_numerical_integration(logs):
    odds = math.log(likelihood(logs, BAD, True) / likelihood(logs, BAD, False))

    assert slow_log_odds(logs, BAD) == pytest.approx(odds, abs=0.01)


def test_no_pairs_are_no_evidence():
    assert slow_log_odds([], BAD) == 0.0


@given(LOGS, st.randoms())
def test_the_order_of_pairs_is_no_evidence(logs, random):
    mixed = random.sample(logs, len(logs))

    assert slow_log_odds(mixed, BAD) == pytest.approx(slow_log_odds(logs, BAD))


@given(LOGS)
def test_a_gain_is_judged_as_a_loss_is(logs):
    mirrored = slow_log_odds([-log for log in logs], [-log for log in BAD])

    assert mirrored == pytest.approx(slow_log_odds(logs, BAD))


def test_equal_figures_are_not_infinitely_sure():
    assert 0 < slow_log_odds([0.1] * 4, [0.1] * 4) < 100
    assert slow_log_odds([0.0] * 4, [0.0] * 4) == pytest.approx(-math.log(2) / 2)


def test_the_evidence_of_one_pair_is_bounded_where_the_spread_is_of_two_pairs():
    """By normal laws with the plugged-in sd of 1 %, the log odds of this pair would be above 60."""
    assert 0 < slow_log_odds([0.12], [0.11, 0.125]) < 6


def test_false_odds_are_as_rare_as_they_state():
    """Under good, the mean of the odds is 1 at most: so 9 to 1 comes less than once in nine."""
    random = np.random.default_rng(5)
    trials = [
        slow_log_odds(random.normal(0, 0.05, 6), random.normal(0.08, 0.05, 8)) for _ in range(2000)
    ]

    assert np.mean(np.array(trials) > math.log(9)) < 1 / 9


@pytest.mark.parametrize(
    ("logs", "bad"), [([math.nan], BAD), ([0.1], [0.1]), ([0.1], [0.1, math.inf])]
)
def test_what_shows_no_spread_is_an_error(logs, bad):
    with pytest.raises(ValueError, match=r"finite|at least two"):
        slow_log_odds(logs, bad)
