"""Moderation against the published formulas, and against variances drawn from the model."""

import math

import numpy as np
import pytest
from scipy import special, stats

from ddp_perf.core.verdict import SessionPrior
from ddp_perf.stats.rule.levels import (
    WIDE_DEFAULT,
    SessionSpread,
    detrend,
    moderate,
    session_correlation,
    session_spread,
    squeeze_session_variance,
    trigamma_inverse,
)


@pytest.mark.parametrize("y", [1e-4, 0.3, 1.0, 2.5, 40.0, 1e6])
def test_trigamma_inverse_is_the_inverse(y):
    assert trigamma_inverse(float(special.polygamma(1, y))) == pytest.approx(y, rel=1e-6)


def test_trigamma_inverse_at_its_limits():
    assert trigamma_inverse(1e10) == pytest.approx(1e-5)
    assert trigamma_inverse(1e-10) == pytest.approx(1e10)


def test_prior_solves_smyths_equations():
    variances, dfs = [1.0, 3.0, 0.2, 8.0, 0.9, 0.05], [4.0, 4.0, 7.0, 2.0, 4.0, 9.0]
    prior = squeeze_session_variance(variances, dfs)
    s2, d = np.array(variances), np.array(dfs)
    e = np.log(s2) - special.digamma(d / 2) + np.log(d / 2)
    d0, s0_squared = prior.degrees_of_freedom, prior.sd**2
    assert special.polygamma(1, d0 / 2) == pytest.approx(
        np.mean((e - e.mean()) ** 2 * 6 / 5 - special.polygamma(1, d / 2)), rel=1e-6
    )
    expected = math.exp(e.mean() + special.digamma(d0 / 2) - math.log(d0 / 2))
    assert s0_squared == pytest.approx(expected, rel=1e-6)


def test_prior_is_recovered_from_the_model_it_assumes():
    random = np.random.default_rng(7)
    d0, s0, d, cases = 8.0, 0.01, 4.0, 20_000
    true = d0 * s0**2 / random.chisquare(d0, cases)
    prior = squeeze_session_variance(true * random.chisquare(d, cases) / d, [d] * cases)
    assert prior.degrees_of_freedom == pytest.approx(d0, rel=0.1)
    assert prior.sd == pytest.approx(s0, rel=0.02)


def test_cases_that_differ_only_by_chance_share_one_variance():
    prior = squeeze_session_variance([1.0e-4, 1.1e-4, 0.9e-4], [5, 5, 5])
    assert prior.degrees_of_freedom == math.inf
    assert prior.sd == pytest.approx(0.01, rel=0.01)


def test_prior_of_one_case_has_no_degrees_of_freedom():
    assert squeeze_session_variance([4e-4], [3]) == SessionPrior(sd=0.02, degrees_of_freedom=0)


def test_zero_variances_are_raised_and_unusable_ones_are_dropped():
    usable = squeeze_session_variance([0.0, 1e-4, 2e-4, 1.5e-4], [3, 3, 3, 3])
    assert 0 < usable.sd < 0.02
    assert math.isfinite(usable.degrees_of_freedom)
    padded = [0.0, 1e-4, 2e-4, 1.5e-4, math.nan, 5.0, -1.0]
    assert squeeze_session_variance(padded, [3, 3, 3, 3, 3, 0, 3]) == usable
    assert squeeze_session_variance([0.0, 0.0], [3, 3]).degrees_of_freedom == 0


@pytest.mark.parametrize(("variances", "dfs"), [([], []), ([1.0], [0.0]), ([1.0, 2.0], [1.0])])
def test_no_usable_variance_is_an_error(variances, dfs):
    with pytest.raises(ValueError, match=r"degrees of freedom"):
        squeeze_session_variance(variances, dfs)


def test_moderated_variance_is_the_weighted_mean():
    own = SessionSpread(variance=4e-4, degrees_of_freedom=2.0)
    prior = SessionPrior(sd=0.01, degrees_of_freedom=6)
    squeezed = moderate(own, prior, launch_noise=0.0)
    assert squeezed.variance == pytest.approx((6 * 1e-4 + 2 * 4e-4) / 8)
    assert squeezed.degrees_of_freedom == 8
    assert squeezed.assumed_sd is None


def test_launch_noise_is_added_to_the_prior_and_bounds_the_own_variance():
    own = SessionSpread(variance=1e-6, degrees_of_freedom=2.0)
    squeezed = moderate(own, SessionPrior(sd=0.01, degrees_of_freedom=2), launch_noise=1e-4)
    assert squeezed.variance == pytest.approx((2 * 2e-4 + 2 * 1e-4) / 4)


def test_wide_default_is_used_only_without_any_other_estimate():
    one, two, three = (
        moderate(SessionSpread(variance=1e-4, degrees_of_freedom=d), None, launch_noise=0.0)
        for d in (0.0, 1.0, 2.0)
    )
    assert one.variance == WIDE_DEFAULT.sd**2
    assert one.assumed_sd == WIDE_DEFAULT.sd
    assert two.variance == pytest.approx((4 * WIDE_DEFAULT.sd**2 + 1e-4) / 5)
    assert (three.variance, three.degrees_of_freedom, three.assumed_sd) == (1e-4, 2.0, None)


def test_an_assumed_prior_counts_until_there_are_two_degrees_of_freedom():
    assumed = SessionPrior(sd=0.01, degrees_of_freedom=4.0, assumed=True)
    none, one, two = (
        moderate(SessionSpread(variance=4e-4, degrees_of_freedom=d), assumed, launch_noise=0.0)
        for d in (0.0, 1.0, 2.0)
    )

    assert (none.variance, none.assumed_sd) == (pytest.approx(1e-4), 0.01)
    assert (one.variance, one.assumed_sd) == (pytest.approx((4 * 1e-4 + 4e-4) / 5), 0.01)
    assert (two.variance, two.degrees_of_freedom, two.assumed_sd) == (4e-4, 2.0, None)


@pytest.mark.parametrize("d0", [5.0, math.inf])
def test_contradicted_prior_is_not_used(d0):
    own = SessionSpread(variance=1e-2, degrees_of_freedom=7.0)
    prior = SessionPrior(sd=0.005, degrees_of_freedom=d0)
    assert moderate(own, prior, launch_noise=0.0) == own


def test_strong_trend_is_removed_and_a_weak_one_is_kept():
    noise = np.random.default_rng(3).normal(0, 1, 20)
    residual, df = detrend(noise + np.arange(20.0))
    assert df == 18
    assert residual @ np.arange(20.0) == pytest.approx(0, abs=1e-9)
    residual, df = detrend(noise)
    assert df == 19
    assert residual == pytest.approx(noise - noise.mean())


def test_residual_of_a_trend_without_noise_is_zero():
    residual, df = detrend(np.arange(10.0))
    assert (df, float(residual @ residual)) == (8, pytest.approx(0, abs=1e-20))


def test_spread_of_correlated_sessions_is_unbiased():
    """AR(1) at 0.6: the plain variance of 30 sessions is too small, the corrected one is not."""
    random = np.random.default_rng(11)
    plain, mended = [], []
    for _ in range(400):
        sessions = [random.normal()]
        for _ in range(29):
            sessions.append(0.6 * sessions[-1] + 0.8 * random.normal())
        residual = np.array(sessions) - np.mean(sessions)
        plain.append(residual @ residual / 29)
        mended.append(session_spread(residual, 29).variance)
    assert np.mean(plain) < 0.95
    assert np.mean(mended) == pytest.approx(1.0, abs=0.04)


def test_independent_sessions_count_almost_in_full():
    random = np.random.default_rng(5)
    correlations = [session_correlation(x - x.mean()) for x in random.normal(size=(400, 8))]
    assert 0 <= np.mean(correlations) < 0.1
    spread = SessionSpread(variance=1.0, degrees_of_freedom=7, correlation=0.5)
    assert spread.independent_sessions(9) == pytest.approx(3)
    assert spread.independent_sessions(1) == 1


@pytest.mark.parametrize(("p", "contradicted"), [(0.009, True), (0.011, False)])
@pytest.mark.parametrize("prior_df", [20.0, math.inf])
def test_a_prior_is_not_used_below_a_p_value_of_one_per_cent(p, contradicted, prior_df):
    """The F test has the case's 4 degrees of freedom first, then the prior's."""
    quantile = stats.chi2.isf(p, 4) / 4 if math.isinf(prior_df) else stats.f.isf(p, 4, prior_df)
    own = SessionSpread(variance=1e-4 * float(quantile), degrees_of_freedom=4.0)
    prior = SessionPrior(sd=0.01, degrees_of_freedom=prior_df)

    found = moderate(own, prior, launch_noise=0.0)

    assert (found.degrees_of_freedom == 4.0) is contradicted
    assert (found.variance == pytest.approx(own.variance)) is contradicted
