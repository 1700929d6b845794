"""Regressions of a history: what opens one, what ends it, and how it ended."""

from __future__ import annotations

import pytest

from ddp_perf.core.verdict import Outcome
from ddp_perf.history.records import TimeSeries
from ddp_perf.history.standing import State, regressions
from tests.recorded_sessions import LEVEL, SLOW, make_series
from tests.recorded_sessions import make_judged_series as series_of

PASS, RED = Outcome.PASS, Outcome.REGRESSION


def states(series: TimeSeries) -> list[State]:
    return [one.state for one in regressions([series])]


def test_sessions_that_pass_have_no_regression():
    assert regressions([series_of((LEVEL, PASS), (LEVEL, Outcome.IMPROVEMENT))]) == []


def test_an_open_regression_has_the_sessions_around_it():
    series = series_of((LEVEL, PASS), (SLOW, RED), (SLOW, RED))

    (found,) = regressions([series])

    points = series.sessions
    assert found.state is State.OPEN
    assert (found.before, found.after) == (points[0].session, None)
    assert (found.first, found.newest) == (points[1].session, points[2].session)
    assert (found.red_sessions, found.is_new) == (2, False)
    assert found.unexpected_sessions == 2
    assert found.verdict == points[2].figure.verdict


@pytest.mark.parametrize(
    "outcome", [Outcome.SUSPECT, Outcome.UNDECIDED, Outcome.INVALID, Outcome.NO_BASELINE]
)
def test_a_session_without_a_clear_verdict_neither_opens_nor_ends_one(outcome):
    assert states(series_of((LEVEL, PASS), (SLOW, outcome))) == []
    assert states(series_of((SLOW, RED), (LEVEL, outcome))) == [State.OPEN]


def test_a_node_that_is_slow_is_no_regression_of_the_code():
    assert states(series_of((SLOW, Outcome.BAD_NODE))) == []


def test_a_session_that_was_slowed_on_purpose_counts_for_nothing():
    sessions = ((LEVEL, PASS), (SLOW, RED), (LEVEL, PASS))

    assert states(series_of(*sessions, injected=[1])) == []
    assert states(series_of(*sessions, injected=[2])) == [State.OPEN]


def test_a_figure_that_came_back_is_fixed_and_one_that_stayed_is_accepted():
    assert states(series_of((SLOW, RED), (LEVEL * 1.01, PASS))) == [State.FIXED]
    assert states(series_of((SLOW, RED), (SLOW * 0.99, PASS))) == [State.ACCEPTED]


def test_a_target_that_is_met_again_is_fixed():
    series = series_of((0.5, Outcome.MISSES_TARGET), (0.4, Outcome.MEETS_TARGET))

    assert states(series) == [State.FIXED]


def test_how_an_exact_metric_ended_is_unknown():
    series = series_of((LEVEL, RED), (LEVEL, PASS), metric="structure")

    assert states(series) == [State.ENDED]


def test_an_expected_regression_is_acknowledged():
    series = series_of((LEVEL, PASS), (SLOW, RED), acknowledged={1: "worth it"})

    (found,) = regressions([series])

    assert (found.state, found.verdict.acknowledged) == (State.ACKNOWLEDGED, "worth it")


def test_open_ones_come_first_and_then_the_newest():
    ended = series_of((SLOW, RED), (LEVEL, PASS), (LEVEL, PASS), (SLOW, RED), (LEVEL, PASS))
    still = series_of((LEVEL, PASS), (SLOW, RED), metric="tail")

    found = regressions([ended, still])

    assert [one.metric for one in found] == ["tail", "step_time", "step_time"]
    assert found[1].first.date > found[2].first.date


def test_a_host_of_a_pool_does_not_end_the_regression_of_another_one():
    hosts = ["a", "b", "a"]
    outcomes = {0: RED, 1: PASS, 2: RED}
    series = make_series(
        [SLOW, LEVEL, SLOW], outcomes=outcomes, host=hosts.__getitem__, pool=lambda _: "alike"
    )

    (found,) = regressions([series])

    assert (found.state, found.red_sessions) == (State.OPEN, 2)
