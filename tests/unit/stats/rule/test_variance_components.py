"""The variance components of a comparison by hand, and the advice on what would decide it."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from ddp_perf.stats.rule.comparison import Comparison, SignificanceLevels
from ddp_perf.stats.rule.reason import missing_sessions_text
from ddp_perf.stats.rule.session_variance import WIDE_DEFAULT, SessionSpread
from ddp_perf.stats.rule.variance_components import (
    VarianceComponents,
    launches_to_decide,
    sessions_to_decide,
)

LEVELS = SignificanceLevels(regression=0.001)


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
        "sessions": 8,
        "reference_sessions": 4,
        "control": 2e-4,
    }
    return VarianceComponents(**{**fields, **changes})


def test_the_variance_is_that_of_the_session_its_launches_the_reference_and_the_control():
    # 3e-4 of the session, 1e-3 ÷ 5 of its launches, 2e-4 of the control.
    assert errors().standard_error == pytest.approx(
        math.sqrt(7e-4 + MEDIAN_OF_FOUR * 4e-4), rel=1e-5
    )


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
    assert restless.degrees_of_freedom_of(7) == pytest.approx(expected(7), rel=1e-5)
    assert restless.degrees_of_freedom_of(10) == 7.0


def compared(errors, difference):
    return Comparison(
        difference=difference,
        standard_error=errors.standard_error,
        degrees_of_freedom=errors.degrees_of_freedom,
        tolerance=0.1,
    )


def test_more_launches_are_asked_for_only_if_they_can_decide():
    """The result is the fewest launches with which the same ratio would pass."""
    noisy = errors(variance=2e-4, launch_variance=4e-2, launches=5, control=0.0, launch_df=400)
    now = compared(noisy, 0.0)

    more = launches_to_decide(noisy, now, LEVELS)

    def passes(launches):
        variance = noisy.variance(launches, noisy.reference_sessions)
        then = msgspec.structs.replace(now, standard_error=math.sqrt(variance))
        return then.passes(LEVELS.passing)

    assert more > 1
    assert passes(5 + more)
    assert not passes(5 + more - 1)


@pytest.mark.parametrize(
    "sources",
    [
        errors(variance=2e-4, launch_variance=4e-2, launch_df=400, assumed_sd=0.03),
        errors(variance=1e-1),
    ],
    ids=["how sessions differ is assumed", "sessions differ too much"],
)
def test_no_more_launches_are_asked_for_if_sessions_are_missing(sources):
    assert launches_to_decide(sources, compared(sources, 0.0), LEVELS) is None


@pytest.mark.parametrize(
    ("sessions", "missing"), [(1, "2 more baseline sessions"), (2, "1 more baseline session")]
)
@pytest.mark.parametrize(("sd", "stated"), [(WIDE_DEFAULT.sd, "3 %"), (0.01, "1 %"), (0.04, "4 %")])
def test_the_session_spread_is_assumed_below_three_sessions_and_the_missing_ones_are_counted(
    sessions, missing, sd, stated
):
    few = errors(assumed_sd=sd, sessions=sessions, reference_sessions=sessions)

    more = sessions_to_decide(few, compared(few, 0.0), LEVELS)

    assert more == 3 - sessions
    assert missing_sessions_text(few, more) == (
        f"there are too few sessions to estimate how they differ ({stated} is assumed);"
        f" {missing} would show it"
    )


@pytest.mark.parametrize("variance", [5e-4, 1.4e-3])
def test_the_sessions_asked_for_are_the_fewest_that_would_decide(variance):
    """Few sessions set the level so far: each further one improves it and its variance."""
    growing = errors(variance=variance, df=3.0, control=0.0, sessions=4, reference_sessions=4)
    now = compared(growing, 0.0)

    asked = sessions_to_decide(growing, now, LEVELS)

    def passes(sessions):
        then = msgspec.structs.replace(
            now,
            standard_error=math.sqrt(growing.variance(growing.launches, sessions)),
            degrees_of_freedom=now.degrees_of_freedom + sessions - 4,
        )
        return then.passes(LEVELS.passing)

    more = next(count for count in range(1, 101) if passes(4 + count))
    assert (more > 1) is (variance > 5e-4)
    assert asked == more
    text = missing_sessions_text(growing, asked)
    assert text.endswith(f"but about {more} more baseline session{'s' if more > 1 else ''} would")
    assert text.startswith(f"sessions differ by {100 * math.sqrt(variance - 1e-4):.1f} %, so no")


def test_more_sessions_improve_a_frozen_level_less_than_a_growing_one():
    frozen = errors(variance=3e-3, df=4.0, control=0.0, sessions=8, reference_sessions=2)
    growing = msgspec.structs.replace(frozen, reference_sessions=8)

    def asked(components):
        return sessions_to_decide(components, compared(frozen, 0.0), LEVELS)

    assert asked(frozen) != asked(growing)


def test_no_number_of_sessions_decides_where_they_differ_too_much_for_the_tolerance():
    wild = errors(variance=1e-1)

    more = sessions_to_decide(wild, compared(wild, 0.0), LEVELS)

    assert more is None
    assert "too much for this tolerance" in missing_sessions_text(wild, more)
