"""The choice between wall time and CPU time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_perf.stats.pairs import choose_yardstick, pair_spread

LEVELS = st.lists(st.floats(0.001, 10), min_size=2, max_size=12)


def test_the_spread_of_independent_launches_is_that_of_a_pair():
    launches = np.exp(np.random.default_rng(1).normal(0, 0.03, 20_000))

    assert pair_spread(launches.tolist()) == pytest.approx(0.03 * math.sqrt(2), rel=0.03)


def test_what_moves_for_minutes_is_no_spread_of_a_pair():
    drift = np.exp(np.linspace(0, 0.5, 21)).tolist()

    assert pair_spread(drift) == pytest.approx(0.025)


@given(LEVELS, st.floats(0.001, 1000))
def test_the_spread_has_no_unit_and_no_direction(levels, unit):
    spread = pair_spread(levels)

    assert pair_spread([unit * level for level in levels]) == pytest.approx(spread, abs=1e-9)
    assert pair_spread(levels[::-1]) == pytest.approx(spread)


def test_cpu_time_decides_if_stolen_time_is_in_the_wall_alone():
    chosen = choose_yardstick([1.0, 1.4, 1.1, 1.6, 1.0, 1.3], [1.0, 1.05, 1.0, 1.04, 0.98, 1.0])

    assert chosen.metric == "cpu_time"
    assert chosen.cpu < chosen.wall
    assert chosen.reason == (
        "CPU time decides: launches of one side differ by 34.7 % in step time"
        " and by 4.5 % in CPU time"
    )


@given(LEVELS)
def test_wall_time_decides_unless_cpu_time_is_clearly_steadier(levels):
    assert choose_yardstick(levels, levels).metric == "step_time"


@pytest.mark.parametrize(("ratio", "metric"), [(1.2, "step_time"), (1.3, "cpu_time")])
def test_clearly_is_a_quarter_more(ratio, metric):
    cpu = np.array([0.0, 0.1, 0.0, 0.1])

    assert choose_yardstick(np.exp(ratio * cpu).tolist(), np.exp(cpu).tolist()).metric == metric


def test_figures_without_any_spread_leave_the_wall_time():
    assert choose_yardstick([1.0, 1.0], [1.0, 1.0]).metric == "step_time"


@pytest.mark.parametrize("levels", [[], [1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan]])
def test_levels_that_show_no_spread_are_an_error(levels):
    with pytest.raises(ValueError, match=r"at least two|positive"):
        pair_spread(levels)


def test_series_of_two_lengths_are_an_error():
    with pytest.raises(ValueError, match="not of one series"):
        choose_yardstick([1.0, 1.1, 1.2], [1.0, 1.1])
