"""Input that no good measurement gives: a defined outcome and reason, never PASS by accident."""

import math

import pytest

from ddp_perf.core.verdict import Outcome, SessionPrior
from tests.judging import judge
from tests.unit.stats.rule.machine import scaled, simulated_sessions

RULE = {"tolerance": 0.02, "alpha": 0.001}
*BASELINE, CURRENT = simulated_sessions(9, seed=1, values=3, value=0.01)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_values_must_be_finite_and_positive(value):
    bad = [[1.0, value, 1.0], *CURRENT[1:]]
    verdict = judge(bad, BASELINE, **RULE)
    assert verdict.outcome is Outcome.INVALID
    assert f"launch 1 of this session has the value {value};" in verdict.reason
    assert verdict.ratio is None
    verdict = judge(CURRENT, [*BASELINE[:2], bad], **RULE)
    assert verdict.outcome is Outcome.INVALID
    assert "launch 1 of baseline session 3" in verdict.reason
    verdict = judge(CURRENT, BASELINE, control=bad, baseline_control=[CURRENT] * 8, **RULE)
    assert verdict.outcome is Outcome.INVALID
    assert "the control" in verdict.reason


@pytest.mark.parametrize(
    ("current", "baseline", "reason"),
    [
        ([], BASELINE, "this session has no launch"),
        ([[1.0], []], BASELINE, "launch 2 of this session has no value"),
        (CURRENT, [BASELINE[0], []], "baseline session 2 has no launch"),
        (CURRENT, [[[]]], "launch 1 of baseline session 1 has no value"),
    ],
)
def test_empty_launches_are_invalid(current, baseline, reason):
    verdict = judge(current, baseline, **RULE)
    assert verdict.outcome is Outcome.INVALID
    assert verdict.reason == reason


def test_no_session_is_no_baseline():
    assert judge(CURRENT, [], **RULE).outcome is Outcome.NO_BASELINE


def test_one_baseline_session_never_passes():
    for session in (BASELINE[0], [[1.0]] * 5):
        verdict = judge(session, [session], **RULE)
        assert verdict.outcome is Outcome.UNDECIDED
        assert verdict.assumed_sd == 0.03


def test_one_baseline_session_finds_a_slow_down_by_a_factor_of_two():
    assert judge(scaled(CURRENT, 2), BASELINE[:1], **RULE).outcome is Outcome.REGRESSION


def test_one_launch_is_judged_with_the_launch_noise_of_the_baseline():
    one, five = (judge(CURRENT[:k], BASELINE, **RULE) for k in (1, 5))
    widths = [high / low for low, high in (one.interval, five.interval)]
    assert widths[0] > widths[1]
    assert judge(scaled(CURRENT[:1], 1.3), BASELINE, **RULE).outcome is Outcome.REGRESSION


def test_one_launch_against_one_launch_is_undecided():
    verdict = judge([[1.0]], [[[1.0]]], **RULE)
    assert verdict.outcome is Outcome.UNDECIDED


def test_unequal_counts_are_judged():
    baseline = [session[: 1 + number % 5] for number, session in enumerate(BASELINE)]
    assert judge(CURRENT[:3], baseline, **RULE).outcome is Outcome.PASS
    assert judge(scaled(CURRENT[:3], 1.2), baseline, **RULE).outcome is Outcome.REGRESSION


def test_values_without_any_spread_are_compared_exactly():
    """A count of bytes is such a metric: it is equal in every launch of eight sessions."""
    same = [[1.0]] * 5
    verdict = judge(same, [same] * 8, **RULE)
    assert (verdict.outcome, verdict.ratio, verdict.interval) == (Outcome.PASS, 1.0, (1.0, 1.0))
    assert judge(scaled(same, 1.01), [same] * 8, **RULE).outcome is Outcome.PASS
    assert judge(scaled(same, 1.03), [same] * 8, **RULE).outcome is Outcome.REGRESSION
    assert judge(scaled(same, 0.97), [same] * 8, **RULE).outcome is Outcome.IMPROVEMENT


def test_sessions_without_spread_allow_launches_with_spread():
    same = [[1.0]] * 5
    noisy = [[0.9], [1.1], [1.0], [1.05], [0.95]]
    verdict = judge(noisy, [same] * 8, **RULE)
    assert verdict.outcome is not Outcome.REGRESSION
    assert verdict.interval[1] > verdict.ratio


@pytest.mark.parametrize("sessions", [1, 3, 8])
def test_prior_without_degrees_of_freedom_is_not_used(sessions):
    prior = SessionPrior(sd=0.001, degrees_of_freedom=0)
    assert judge(CURRENT, BASELINE[:sessions], prior=prior, **RULE) == judge(
        CURRENT, BASELINE[:sessions], **RULE
    )


@pytest.mark.parametrize("sessions", [1, 3, 8])
def test_prior_of_infinite_degrees_of_freedom_replaces_the_own_spread(sessions):
    prior = SessionPrior(sd=0.005, degrees_of_freedom=math.inf)
    verdict = judge(CURRENT, BASELINE[:sessions], prior=prior, **RULE)
    assert verdict.outcome is Outcome.PASS
    slower = judge(scaled(CURRENT, 1.06), BASELINE[:sessions], prior=prior, **RULE)
    assert slower.outcome is Outcome.REGRESSION


def test_certain_prior_without_spread_still_finds_a_regression():
    prior = SessionPrior(sd=0.0, degrees_of_freedom=math.inf)
    verdict = judge(scaled(CURRENT, 1.2), BASELINE, prior=prior, **RULE)
    assert verdict.outcome is Outcome.REGRESSION


@pytest.mark.parametrize(
    "option",
    [
        {"tolerance": 0.0},
        {"tolerance": -0.1},
        {"tolerance": 1.0},
        {"tolerance": math.nan},
        {"alpha": 0.0},
        {"alpha": 0.5},
        {"alpha": math.nan},
        {"reference": 0},
        {"prior": SessionPrior(sd=-1.0, degrees_of_freedom=1)},
        {"prior": SessionPrior(sd=math.nan, degrees_of_freedom=1)},
        {"prior": SessionPrior(sd=0.01, degrees_of_freedom=-1)},
        {"prior": SessionPrior(sd=0.01, degrees_of_freedom=math.nan)},
        {"control": CURRENT, "baseline_control": [CURRENT]},
    ],
)
def test_options_out_of_range_are_errors(option):
    with pytest.raises(ValueError, match="must"):
        judge(CURRENT, BASELINE, **{**RULE, **option})


def test_reference_beyond_the_baseline_is_the_baseline():
    assert judge(CURRENT, BASELINE, reference=99, **RULE) == judge(CURRENT, BASELINE, **RULE)


@pytest.mark.parametrize(
    ("control", "baseline_control"),
    [(CURRENT, None), (None, BASELINE), (CURRENT, [[], *BASELINE[1:]]), ([], BASELINE)],
)
def test_incomplete_control_is_not_used(control, baseline_control):
    plain = judge(CURRENT, BASELINE, **RULE)
    assert plain == judge(
        CURRENT, BASELINE, control=control, baseline_control=baseline_control, **RULE
    )
