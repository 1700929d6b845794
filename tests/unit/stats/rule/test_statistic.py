"""The difference and its variance components, computed by hand from the sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ddp_perf.stats.rule.modes import levels_of
from ddp_perf.stats.rule.statistic import judged_difference


def judged(sessions, *, reference):
    levels = levels_of(sessions, 0.02)
    return judged_difference(levels, None, tolerance=0.02, reference=reference, prior=None)


# Sessions of two, four and one launch, and the current one of two.
SESSIONS = [[1.0, 1.01], [1.0, 1.01, 1.0, 1.01], [1.005], [1.02, 1.03]]


def test_launch_noise_is_the_launch_variance_over_the_number_of_launches():
    errors = judged(SESSIONS, reference=3).errors

    within = [np.log(launches) - np.mean(np.log(launches)) for launches in SESSIONS]
    pooled = sum(float(rest @ rest) for rest in within) / (1 + 3 + 0 + 1)
    assert errors.launch_variance == pytest.approx(pooled)
    assert errors.baseline_launch_noise == pytest.approx(pooled * (1 / 2 + 1 / 4 + 1) / 3)
    assert (errors.launches, errors.sessions, errors.reference_sessions) == (2, 3, 3)


@pytest.mark.parametrize("reference", [1, 2, 3])
def test_the_difference_is_from_the_mean_level_of_the_reference(reference):
    found = judged(SESSIONS, reference=reference)

    levels = [float(np.mean(np.log(launches))) for launches in SESSIONS]
    expected = levels[-1] - sum(levels[:reference]) / reference
    assert found.comparison.difference == pytest.approx(expected)
    assert found.overall == pytest.approx(expected)  # no launch is in a slow mode
    assert not math.isclose(found.comparison.difference, 0.0)
