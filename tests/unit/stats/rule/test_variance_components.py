"""The variance components of a comparison by hand."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import Sampling
from ddp_perf.stats.rule.levels import SessionSpread
from ddp_perf.stats.rule.statistic import VarianceComponents


def variance_of_two_middle_values() -> float:
    """Integrate the variance of the median of four standard normal values.

    The two middle ones have the joint density ``24 Φ(x) φ(x) φ(y) (1 − Φ(y))`` for x < y.
    """
    x = np.linspace(-6, 6, 1201)
    joint = 24 * np.outer(
        stats.norm.cdf(x) * stats.norm.pdf(x), stats.norm.pdf(x) * stats.norm.sf(x)
    )
    joint = np.triu(joint) - np.diag(np.diag(joint)) / 2
    middle = (x[:, None] + x[None, :]) / 2
    return float(np.sum(joint * middle**2) * (x[1] - x[0]) ** 2)


MEDIAN_OF_FOUR = variance_of_two_middle_values()


def errors(*, variance=4e-4, df=7.0, assumed_sd=None, **changes):
    fields = {
        "spread": SessionSpread(variance=variance, degrees_of_freedom=df, assumed_sd=assumed_sd),
        "baseline_launch_noise": 1e-4,
        "launch_variance": 1e-3,
        "launch_df": 32,
        "launches": 5,
        "reference_sessions": 4,
        "control": 2e-4,
    }
    return VarianceComponents(**{**fields, **changes})


def test_the_variance_is_that_of_the_session_its_launches_the_reference_and_the_control():
    # 3e-4 of the session, 1e-3 ÷ 5 of its launches, 2e-4 of the control.
    assert errors().standard_error == pytest.approx(
        math.sqrt(7e-4 + MEDIAN_OF_FOUR * 4e-4), rel=1e-5
    )


def test_what_was_not_measured_before_adds_its_variance_with_its_degrees_of_freedom():
    new = errors(sampling=Sampling(variance=5e-3, degrees_of_freedom=2.0))

    assert new.standard_error**2 == pytest.approx(errors().standard_error ** 2 + 5e-3)
    assert 2.0 < new.degrees_of_freedom < 3.0 < errors().degrees_of_freedom


def test_session_variance_is_never_negative():
    quiet = errors(variance=0.5e-4)

    assert quiet.session_variance == 0
    assert quiet.standard_error == pytest.approx(
        math.sqrt(4e-4 + MEDIAN_OF_FOUR * 0.5e-4), rel=1e-5
    )


def test_information_of_a_look_is_its_inverse_variance_with_half_of_what_sessions_add():
    half = (3e-4 + MEDIAN_OF_FOUR * 4e-4 + 2e-4) / 2
    variances = [half + 1e-3 / launches for launches in (5, 10, 20)]
    expected = [variances[-1] / variance for variance in variances]
    assert errors().information((5, 10, 20)) == pytest.approx(expected, rel=1e-5)


def test_looks_have_equal_information_if_launches_never_differ():
    alike = errors(variance=0.0, baseline_launch_noise=0.0, launch_variance=0.0, control=0.0)

    assert alike.information((5, 10)) == [1.0, 1.0]


def test_degrees_of_freedom_are_shared_where_this_session_has_few_launches():
    # 1e-4 of the error is what two launches have more than a stored session's have.
    few = errors(baseline_launch_noise=1e-4, launches=5)

    rest, excess = 6e-4 + MEDIAN_OF_FOUR * 4e-4, 1e-4
    expected = (rest + excess) ** 2 / (rest**2 / 7 + excess**2 / 32)
    assert few.degrees_of_freedom == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("changes", [{"launches": 10}, {"launches": 11}, {"launch_df": 0}])
def test_degrees_of_freedom_are_otherwise_those_of_the_sessions(changes):
    assert errors(**changes).degrees_of_freedom == 7.0


def test_launches_that_differ_more_than_before_bring_their_own_degrees_of_freedom():
    """As many as this session has launches, and after more launches more."""
    restless = errors(restless=True, launch_df=4)
    rest = 6e-4 + MEDIAN_OF_FOUR * 4e-4

    def expected(launches):
        excess = 1e-3 / launches - 1e-4
        variance = 3e-4 + 1e-3 / launches + MEDIAN_OF_FOUR * 4e-4 + 2e-4
        assert variance - excess == pytest.approx(rest, rel=1e-5)
        return variance**2 / (rest**2 / 7 + excess**2 / (launches - 1))

    assert restless.degrees_of_freedom == pytest.approx(expected(5), rel=1e-5)
    assert msgspec.structs.replace(restless, launches=7).degrees_of_freedom == pytest.approx(
        expected(7), rel=1e-5
    )
    assert msgspec.structs.replace(restless, launches=10).degrees_of_freedom == 7.0
