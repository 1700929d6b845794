"""A case that could not be stored gets more launches, in its budget; no other case does."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import RankConditions
from ddp_perf.core.verdict import Outcome
from tests.builders import make_failure, make_launch
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
        "1 of 2 cases cannot be stored yet: 6 more launches",
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


def test_further_launches_are_not_judged(session):
    """The looks did not plan them: a verdict on them would have a chance of its own."""
    session(busy_until(1000), save_mode="missing")  # without the step time of two ranks

    result = session(busy_until(2), save_mode="append", budget_s=7)

    assert launches(result, TWO) == 2 * FIRST
    judged = [found for found in result.findings if found.sessions]
    assert all(found.launches in result.looks[found.case_id] for found in judged)
    assert result.looks[TWO.id] == (FIRST,)


def test_what_can_be_stored_is_stored_before_further_launches(session):
    def answer(request):
        if request.round >= FIRST:
            raise KeyboardInterrupt
        return busy_until(1000)(request)

    with pytest.raises(KeyboardInterrupt):
        session(answer, save_mode="missing", budget_s=60)

    assert session.stored(ONE).level("step_time") is not None
    assert session.stored(TWO).level("peak_memory") is not None


def test_a_one_rank_case_that_failed_is_not_launched_again(session):
    def answer(request):
        if request.case.id == ONE.id:
            return make_failure(ONE, request.round)
        return busy_until(1000)(request)

    result = session(answer, save_mode="missing", budget_s=60)

    assert launches(result, TWO) > FIRST
    assert len(result.measurements[ONE.id].failures) == 1


def test_a_metric_that_was_left_out_is_stored_by_the_next_session_alone(session):
    session(busy_until(1000), save_mode="missing")
    before = session.stored(ONE)

    result = session(busy_until(0), save_mode="missing")

    assert result.saved.keys() == {TWO.id}
    assert session.stored(TWO).level("step_time") is not None
    assert session.stored(ONE) == before


def test_a_level_stays_as_it_is_when_another_metric_is_added(session):
    """The tail of one rank was disturbed in the first session, and its step was not."""

    def foreign(share):
        def answer(request):
            conditions = RankConditions(foreign=share)
            steps = tuple([0.012] * 40)
            return make_launch(
                request.case,
                request.round,
                step_s=steps,
                conditions=conditions,
                waited_s=(0.0,) * 40,
            )

        return answer

    first = session(foreign(0.12), save_mode="missing")
    level = session.stored(TWO).level("step_time")
    session(foreign(0.0), save_mode="missing")

    assert set(first.saved[TWO.id].without) == {"tail"}
    stored = session.stored(TWO)
    assert stored.level("step_time") == level
    assert len(stored.sessions_with("step_time")) == 1
    assert len(stored.sessions_with("tail")) == 1


def test_an_interrupt_of_further_launches_loses_no_finished_one(session):
    def answer(request):
        if request.round > FIRST:
            raise KeyboardInterrupt
        return busy_until(1000)(request)

    with pytest.raises(KeyboardInterrupt):
        session(answer, save_mode="missing", budget_s=60)

    assert launches(session.partial[-1], TWO) == FIRST + 1


def test_a_session_that_adds_no_metric_is_refused_and_not_reported_as_stored(session):
    session(busy_until(1000), save_mode="missing")
    before = session.stored(TWO)

    result = session(busy_until(1000), save_mode="missing")

    assert TWO.id not in result.saved
    assert "launches were disturbed" in result.not_saved[TWO.id].reason
    assert session.stored(TWO) == before
