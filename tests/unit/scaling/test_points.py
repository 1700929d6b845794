"""Points that a law cannot be fitted to have a reason."""

from __future__ import annotations

import math

import pytest

from ddp_perf.scaling.laws import (
    UNSTATED_ERROR,
    ScalingPoint,
    first_invalid_point,
    session_points,
)


def point(world_size=1, step_s=0.1, error=0.0):
    return ScalingPoint(world_size=world_size, step_s=step_s, error=error)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        pytest.param([], "needs two world sizes, but the data have none", id="no point"),
        pytest.param([point(4)], "the data have only 4 ranks", id="one point"),
        pytest.param(
            [point(), point(step_s=0.2)], "the data have only 1 rank", id="one size, twice"
        ),
        pytest.param([point(), point(2, math.nan)], "step time of 2 ranks is nan", id="NaN"),
        pytest.param([point(), point(2, math.inf)], "step time of 2 ranks is inf", id="infinite"),
        pytest.param([point(), point(2, 0.0)], "step time of 2 ranks is 0.0", id="zero"),
        pytest.param([point(), point(2, -0.1)], "step time of 2 ranks is -0.1", id="negative"),
        pytest.param([point(0), point(2)], "0 ranks is not a world size", id="no rank"),
        pytest.param(
            [point(), point(2, error=math.nan)], "error of 2 ranks is nan", id="NaN error"
        ),
    ],
)
def test_invalid_points_have_a_reason(points, reason):
    assert reason in first_invalid_point(points)


def test_repeated_sizes_are_valid_points():
    assert first_invalid_point([point(), point(), point(2), point(2)]) is None


def test_uncertainty_includes_the_unstated_error():
    assert point().uncertainty == UNSTATED_ERROR
    assert point(error=0.03).uncertainty == pytest.approx(math.hypot(0.03, UNSTATED_ERROR))


def test_points_of_sessions_share_the_error_of_one_session():
    """One world size repeats exactly, and the other differs by log 1.1 between two sessions."""
    one, two = session_points([(1, [0.1, 0.1, 0.1]), (2, [0.2, 0.22])])

    assert (one.step_s, two.step_s) == (0.1, pytest.approx(0.21))
    pooled = math.log(1.1) / math.sqrt(2) / math.sqrt(3)  # one squared sd over three degrees
    assert one.error == two.error == pytest.approx(pooled)
