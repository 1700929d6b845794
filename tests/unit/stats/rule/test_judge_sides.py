"""Two sides of one session or several: by their launches, and by how sessions differ."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from ddp_perf.core.verdict import Outcome, SessionPrior
from ddp_perf.stats.rule.levels import WIDE_DEFAULT
from ddp_perf.stats.rule.two_sides import judge_sides
from tests.judging import judge_by_figures

JITTER = (1.0, 1.01, 0.99, 1.005, 0.995)
RULE = {"tolerance": 0.05, "alpha": 0.0005, "prior": WIDE_DEFAULT}


def session(level=1.0, jitter=JITTER):
    return [level * factor for factor in jitter]


def verdict_of(new, old, **changes):
    return judge_sides(
        [session(level) for level in new], [session(level) for level in old], **{**RULE, **changes}
    )


def test_a_session_against_itself_passes_by_its_launches():
    verdict = verdict_of([1.0], [1.0])

    assert verdict.outcome is Outcome.PASS
    assert verdict.ratio == 1.0


@pytest.mark.parametrize(
    ("new", "old", "reason"),
    [
        ([], [session()], "the newer side has no session with a figure"),
        ([session()], [], "the older side has no session with a figure"),
        ([[]], [session()], "newer session 1 has no launch"),
    ],
)
def test_a_side_without_a_figure_is_invalid(new, old, reason):
    verdict = judge_sides(new, old, **RULE)

    assert (verdict.outcome, verdict.reason) == (Outcome.INVALID, reason)


@pytest.mark.parametrize(
    ("jitter", "pooled"), [((1.0, 1.03, 0.97), False), ((1.0, 1.008, 0.992), True)]
)
def test_one_session_a_side_passes_where_the_t_test_rules_out_twice_the_tolerance(jitter, pooled):
    """It is Welch's test where the launches of one side differ more."""
    new, old = session(jitter=jitter), session()

    def bound(by):
        test = stats.ttest_ind(np.log(new) + math.log(by), np.log(old), equal_var=pooled)
        return math.exp(test.confidence_interval(0.99).high)

    factors = np.linspace(0.9, 1.1, 81)
    passes = [
        judge_sides([[by * value for value in new]], [old], **RULE).outcome is Outcome.PASS
        for by in factors
    ]

    assert passes == [bound(by) < 1.1 for by in factors]
    assert True in passes
    assert False in passes


@pytest.mark.parametrize("ratio", [1.0, 1.2, 1.6])
def test_the_figures_of_one_session_a_side_are_those_of_the_gate_with_one_stored_session(ratio):
    now, before = session(ratio), session()
    gate = judge_by_figures(now, [before], **{**RULE, "alpha": 0.0005 / 0.75})

    verdict = judge_sides([now], [before], **RULE)

    assert verdict.ratio == pytest.approx(gate.ratio)
    assert verdict.interval == pytest.approx(gate.interval)
    assert verdict.upper == pytest.approx(gate.upper)
    assert verdict.minimum_detectable == pytest.approx(gate.minimum_detectable)
    assert (verdict.outcome is Outcome.REGRESSION) is (gate.outcome is Outcome.REGRESSION)


@pytest.mark.parametrize(
    ("level", "outcome"),
    [
        (1.6, Outcome.REGRESSION),
        (1.25, Outcome.SUSPECT),
        (1.11, Outcome.UNDECIDED),
        (0.6, Outcome.IMPROVEMENT),
    ],
)
def test_a_regression_counts_how_sessions_are_assumed_to_differ(level, outcome):
    assert verdict_of([level], [1.0]).outcome is outcome


def test_another_session_of_each_side_finds_less():
    one, two = verdict_of([1.0], [1.0]), verdict_of([1.0, 1.02], [1.02, 1.0])

    assert two.minimum_detectable < 0.6 * one.minimum_detectable


def test_sessions_of_one_side_that_differ_more_than_their_launches_prevent_a_pass():
    verdict = verdict_of([1.0, 1.06], [1.06, 1.0])

    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.ratio == pytest.approx(1.0)


def test_launches_of_two_hosts_prove_nothing():
    assert verdict_of([1.0], [1.0], same_machine=False).outcome is Outcome.UNDECIDED


def test_one_launch_of_each_side_has_no_spread():
    verdict = judge_sides([[1.0]], [[1.0]], **RULE)

    assert verdict.outcome is Outcome.UNDECIDED


def test_many_sessions_of_one_launch_are_compared_by_the_textbook_t_test():
    old, new = np.exp(np.random.default_rng(2).normal(0, 0.01, (2, 4, 1)))
    plain = stats.ttest_ind(np.log(new[:, 0]), np.log(old[:, 0]))

    verdict = judge_sides(new.tolist(), old.tolist(), **RULE)

    # Sessions that seem correlated widen the interval; these are seeded to show none.
    assert verdict.interval == pytest.approx(tuple(np.exp(plain.confidence_interval(0.99))))
    assert "assumed" not in verdict.reason


def test_a_measured_prior_of_the_other_cases_replaces_the_assumed_one():
    prior = SessionPrior(sd=0.002, degrees_of_freedom=20)

    verdict = verdict_of([1.06] * 2, [1.0] * 2, prior=prior, tolerance=0.02)

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict_of([1.06] * 2, [1.0] * 2, tolerance=0.02).outcome is not Outcome.REGRESSION


def test_more_slow_launches_than_in_any_older_session_are_suspect():
    slow = [session(jitter=(1.0, 1.01, 1.5, 1.51, 1.49))]

    verdict = judge_sides(slow, [session()] * 3, **RULE)

    assert verdict.outcome is Outcome.SUSPECT
    assert verdict.upper is None


def test_a_value_that_no_measurement_gives_is_invalid_and_named():
    verdict = judge_sides([session(), [1.0, math.nan]], [session()], **RULE)

    assert verdict.outcome is Outcome.INVALID
    assert "launch 2 of newer session 2 has the value nan" in verdict.reason


@pytest.mark.parametrize("slower", [1.0, 1.6])
def test_no_reason_speaks_of_what_is_stored(slower):
    for sessions in (1, 2, 4):
        reason = verdict_of([slower] * sessions, [1.0] * sessions).reason
        assert not {"baseline", "stored"} & set(reason.split())


def test_the_rule_of_an_assumed_prior_ends_with_four_degrees_of_freedom():
    assumed = verdict_of([1.0] * 2, [1.0] * 3)
    measured = verdict_of([1.0] * 3, [1.0] * 3)

    assert "assumed" in assumed.reason
    assert "assumed" not in measured.reason
    other = msgspec.structs.replace(WIDE_DEFAULT, sd=0.3)
    assert verdict_of([1.0] * 3, [1.0] * 3, prior=other) == measured
