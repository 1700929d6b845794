"""How many suspect sessions in a row are a regression, against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from ddp_perf.stats.rule.comparison import (
    REPEATED,
    level_of_one_session,
    sessions_to_confirm,
)

ALPHAS = st.floats(1e-6, 0.3)
CHANCES = st.floats(1e-4, 1.0)


@given(CHANCES, ALPHAS)
def test_the_sessions_are_the_fewest_whose_run_costs_an_eighth_of_alpha(chance, alpha):
    many = sessions_to_confirm(chance, alpha)

    assert many >= 2
    assert chance * 0.1 ** (many - 1) <= alpha / 8 * (1 + 1e-6)
    if many > 2:
        assert chance * 0.1 ** (many - 2) > alpha / 8 * (1 - 1e-6)


@given(ALPHAS, CHANCES)
def test_the_session_and_the_run_together_cost_at_most_alpha(alpha, chance):
    run = chance * REPEATED ** (sessions_to_confirm(chance, alpha) - 1)

    assert level_of_one_session(alpha) + run <= alpha * (1 + 1e-6)
    assert level_of_one_session(alpha) == pytest.approx(0.75 * alpha)


@pytest.mark.parametrize(
    ("chance", "alpha", "sessions"),
    [(0.01, 0.08, 2), (0.01, 0.008, 2), (0.01, 0.0079, 3), (0.01, 0.001, 3), (0.25, 0.002, 4)],
)
def test_a_rarer_alarm_needs_more_sessions(chance, alpha, sessions):
    assert sessions_to_confirm(chance, alpha) == sessions


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.4])
def test_a_run_of_suspects_by_chance_is_as_rare_as_it_must_be(correlation):
    """Sessions whose differences have a correlation of up to 0.4, over 2 million sessions."""
    alpha, level = 0.008, 0.01
    random = np.random.default_rng(0)
    fresh = random.normal(size=2_000_000) * math.sqrt(1 - correlation**2)
    suspect = signal.lfilter([1], [1, -correlation], fresh) > stats.norm.isf(level)
    many = sessions_to_confirm(level, alpha)

    runs = np.convolve(suspect, np.ones(many), "valid") == many
    begins = int(np.sum(runs & ~np.concatenate([[False], runs[:-1]])))

    assert begins / len(suspect) <= alpha / 8 * 1.1
