"""Shares with their intervals, and observed slow-downs, against oracles."""

from __future__ import annotations

import pytest

from ddp_perf.selftest.curve import trials_to_show
from ddp_perf.stats.interval import share_found

TOLERANCE, LEVEL = 0.02, 0.001


@pytest.mark.parametrize("rate", [0.2, 0.01, 0.0021])
def test_a_low_rate_is_shown_by_the_fewest_trials_whose_interval_is_below_it(rate):
    needed = trials_to_show(rate)

    assert share_found(0, needed).interval[1] <= rate < share_found(0, needed - 1).interval[1]
