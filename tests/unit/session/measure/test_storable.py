"""A case that could not be stored gets more launches, in its budget; no other case does."""

from __future__ import annotations

import pytest

from ddp_perf.core.disturbance import RankConditions
from ddp_perf.core.verdict import Outcome
from tests.builders import make_launch
from tests.suites import one_session_a_day
from tests.unit.session.measure.test_suite import CASES, ONE, TWO, Session

FIRST = 3  # launches of the suite


@pytest.fixture
def session(tmp_path, monkeypatch):
    one_session_a_day(monkeypatch)
    return Session(tmp_path)


def busy_until(round_, case=TWO, step_s=0.012):
    """Return the answers of a machine where another process takes cores until that round."""

    def answer(request):
        busy = request.case.id == case.id and request.round < round_
        conditions = RankConditions(foreign=0.5 if busy else 0.0)
        jitter = 1 + 0.002 * (request.round % 3)
        return make_launch(
            request.case, request.round, step_s=step_s * jitter, conditions=conditions
        )

    return answer


def launches(result, case):
    return len(result.measurements[case.id].launches)


def test_a_disturbed_case_is_launched_again_until_it_can_be_stored(session):
    result = session(busy_until(4), save_mode="missing", budget_s=60)

    assert launches(result, TWO) == 3 * FIRST  # 4 of 6 were disturbed, but only 4 of 9
    assert not result.saved[TWO.id].without
    assert session.stored(TWO).level("step_time") == pytest.approx(0.012, rel=0.01)
    assert session.progress.extended[0] == (
        2 * FIRST,
        "2 of 2 cases cannot be stored yet: 6 more launches",
    )


def test_the_one_rank_case_is_launched_in_the_same_rounds(session):
    result = session(busy_until(4), save_mode="missing", budget_s=60)

    rounds = [[launch.round for launch in result.measurements[case.id].launches] for case in CASES]
    assert rounds[0] == rounds[1] == list(range(3 * FIRST))
    assert len(result.summaries[TWO.id]) == sum(
        "efficiency" in row.values for row in result.summaries[TWO.id]
    )


def test_a_disturbed_one_rank_case_brings_the_case_whose_scaling_needs_it(session):
    result = session(busy_until(2, case=ONE), save_mode="missing", budget_s=60)

    assert launches(result, ONE) == 2 * FIRST
    assert not result.saved[TWO.id].without


def test_a_machine_that_stays_busy_ends_at_four_times_the_launches(session):
    result = session(busy_until(1000), save_mode="missing", budget_s=1000)

    assert launches(result, TWO) == 4 * FIRST
    assert "step_time" in result.saved[TWO.id].without


def test_the_budget_limits_the_launches(session):
    """A simulated launch takes a second."""
    assert launches(session(busy_until(4), save_mode="missing", budget_s=0), TWO) == FIRST
    assert launches(session(busy_until(4), save_mode="missing", budget_s=7), TWO) == 2 * FIRST


def test_nothing_is_launched_again_if_it_is_not_to_be_stored(session):
    result = session(busy_until(1000), budget_s=1000)

    assert launches(result, TWO) == FIRST
    assert session.progress.extended == []


def test_a_case_with_a_level_is_not_launched_again_to_be_appended(session):
    """Its verdict would depend on a number of launches that no look planned."""
    session(busy_until(0), save_mode="missing")

    result = session(busy_until(1000), save_mode="append", budget_s=2)

    assert result.finding(TWO.id, "step_time").verdict.outcome is Outcome.INVALID
    assert launches(result, TWO) == FIRST
