"""Plans of steps, followed by what can be asked for a step."""

from __future__ import annotations

import pytest

from ddp_perf.worker.steps.protocol import follow_plan


def two_steps(log):
    log.append("begin")
    yield
    log.append("between")
    yield
    log.append("end")
    return "result"


def test_a_step_is_run_whenever_the_plan_asks_for_one():
    log = []
    assert follow_plan(two_steps(log), lambda: log.append("step")) == "result"
    assert log == ["begin", "step", "between", "step", "end"]


def test_a_plan_may_need_no_step():
    def plan():
        return 3
        yield

    assert follow_plan(plan(), lambda: pytest.fail("it steps")) == 3


def test_plans_are_made_of_plans():
    log = []

    def whole():
        first = yield from two_steps(log)
        yield
        return first

    assert follow_plan(whole(), lambda: log.append("step")) == "result"
    assert log.count("step") == 3


def test_a_step_that_fails_ends_the_plan_where_it_waits():
    """What the plan entered, it leaves at once, not when it is collected."""
    log = []

    def plan():
        try:
            yield
        finally:
            log.append("left")

    with pytest.raises(ZeroDivisionError):
        follow_plan(plan(), lambda: 1 / 0)
    assert log == ["left"]
