"""The launches that a suite has yet to finish, and the time that they take."""

from __future__ import annotations

import msgspec

from ddp_perf.core.launch import LaunchRequest
from ddp_perf.session.measure.rounds import Pending
from tests.builders import make_case, make_failure, make_launch

A, B = (make_case(id=name) for name in "ab")


def rounds_of(*cases, count=3):
    return [LaunchRequest(case=case, round=round_) for round_ in range(count) for case in cases]


def pending(plan, expected_s=None):
    found = Pending(expected_s or {})
    found.add(plan)
    return found


def finish(pending, request, *, wall_s=1.0):
    launch = make_launch(request.case, request.round)
    pending.finish(request, msgspec.structs.replace(launch, wall_s=wall_s))
    return pending.left_s


def test_the_time_left_is_known_after_each_case_was_launched():
    plan = rounds_of(A, B)
    waiting = pending(plan)

    assert waiting.left_s is None
    assert [finish(waiting, request) for request in plan] == [None, 4, 3, 2, 1, 0]


def test_the_baseline_times_what_was_not_launched():
    plan = rounds_of(A, B)
    waiting = pending(plan, {"a": 10.0, "b": 20.0})

    assert waiting.left_s == 3 * 10 + 3 * 20
    assert finish(waiting, plan[0], wall_s=4.0) == 2 * 4 + 3 * 20


def test_the_newest_launch_of_a_case_times_its_next_ones():
    plan = rounds_of(A)
    waiting = pending(plan)

    left_s = [finish(waiting, one, wall_s=s) for one, s in zip(plan, (9, 2, 5), strict=True)]

    assert left_s == [18, 2, 0]


def test_a_failed_case_is_not_waited_for():
    plan = rounds_of(A, B)
    waiting = pending(plan, {"b": 2.0})

    waiting.finish(plan[0], make_failure(A))

    assert not waiting.includes("a")
    assert (waiting.done, waiting.total, waiting.left_s) == (1, 4, 6.0)


def test_further_launches_are_timed_by_the_earlier_ones():
    plan = rounds_of(A)
    waiting = pending(plan)
    for request in plan:
        finish(waiting, request, wall_s=3.0)
    assert not waiting.includes("a")

    waiting.add(rounds_of(A, count=2))

    assert waiting.includes("a")
    assert (waiting.done, waiting.total, waiting.left_s) == (3, 5, 6.0)
