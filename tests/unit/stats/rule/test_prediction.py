"""The advice on what decides a comparison, against drawn futures."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from ddp_perf.stats.rule.comparison import SignificanceLevels
from ddp_perf.stats.rule.levels import SessionSpread
from ddp_perf.stats.rule.statistic import (
    VarianceComponents,
    launches_to_decide,
    sessions_to_decide,
)

LEVELS = SignificanceLevels(regression=0.001)
DRAWS = 20_000


def errors(*, variance=4e-4, df=7.0, assumed_sd=None, **changes):
    fields = {
        "spread": SessionSpread(variance=variance, degrees_of_freedom=df, assumed_sd=assumed_sd),
        "baseline_launch_noise": 1e-4,
        "launch_variance": 1e-3,
        "launch_df": 32,
        "launches": 5,
        "reference_sessions": 5,
        "control": 0.0,
    }
    return VarianceComponents(**{**fields, **changes})


NOISY = errors(variance=2e-4, launch_variance=4e-2, launch_df=400)


def compared(errors, **later):
    return msgspec.structs.replace(errors, **later).compare(0.0, 0.1)


def test_launches_to_decide_are_the_fewest_with_which_the_same_ratio_would_pass():
    now = compared(NOISY)

    more, _ = launches_to_decide(NOISY, now, LEVELS)

    assert more > 1
    assert compared(NOISY, launches=5 + more).passes(LEVELS.passing)
    assert not compared(NOISY, launches=5 + more - 1).passes(LEVELS.passing)


def test_likely_launches_decide_nine_times_in_ten_though_the_ratio_moves():
    now = compared(NOISY)

    fewest, more = launches_to_decide(NOISY, now, LEVELS)

    sd = math.sqrt(NOISY.launch_variance)
    draw = np.random.default_rng(1).normal(0, 1, (2, DRAWS))

    def decided(more):
        """Return how often the session's mean over all launches passes, given that of the first."""
        true = sd / math.sqrt(5) * draw[0]
        means = more / (5 + more) * (true + sd / math.sqrt(more) * draw[1])
        limit = math.log(1.2) - compared(NOISY, launches=5 + more).margin
        return float(np.mean(means < limit))

    assert more > fewest
    assert decided(fewest) < 0.75
    assert decided(more) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    "sources",
    [
        errors(variance=2e-4, launch_variance=4e-2, launch_df=400, assumed_sd=0.03),
        errors(variance=1e-1),
    ],
    ids=["how sessions differ is assumed", "sessions differ too much"],
)
def test_no_more_launches_are_asked_for_if_sessions_are_missing(sources):
    assert launches_to_decide(sources, compared(sources), LEVELS) == (None, None)


@pytest.mark.parametrize("variance", [5e-4, 1.4e-3])
def test_sessions_to_decide_are_the_fewest_if_ratio_and_spread_stay_as_they_are(variance):
    """Few sessions set the level so far: each further one improves it, up to five."""
    growing = errors(variance=variance, df=3.0, reference_sessions=4)
    now = compared(growing)

    def passes(more):
        later = msgspec.structs.replace(
            now,
            standard_error=compared(growing, reference_sessions=min(5, 4 + more)).standard_error,
            degrees_of_freedom=now.degrees_of_freedom + more,
        )
        return later.passes(LEVELS.passing)

    expected = next(more for more in range(1, 101) if passes(more))
    assert (expected > 1) is (variance > 5e-4)
    assert sessions_to_decide(growing, now, LEVELS) == expected


@pytest.mark.parametrize(
    "sources", [errors(variance=1e-1), errors(assumed_sd=0.03)], ids=["too restless", "assumed"]
)
def test_sessions_are_no_advice_where_they_would_not_decide_or_nothing_shows_it(sources):
    assert sessions_to_decide(sources, compared(sources), LEVELS) is None
