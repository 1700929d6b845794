"""A case is counted on its first and its last rank, with values only if the step needs them."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import LaunchFailure
from ddp_perf.core.subject import ScriptRun
from ddp_perf.core.work import CollectiveCount
from ddp_perf.work.session import count_case
from tests.builders import make_case, make_failure
from tests.counters import FakeCounter
from tests.works import make_step_work

ONE = make_case(world_size=1)
EIGHT = make_case(world_size=8)


def asked(counter):
    return [(request.rank, request.compute) for request in counter.asked]


def reduced(size):
    return CollectiveCount(
        phase="backward",
        kind="all_reduce",
        dtype="float32",
        bytes=size,
        group=None,
        asynchronous=True,
        flops_after=0,
        site=0,
    )


def needing_values(request):
    if request.compute:
        return make_step_work(computed=True)
    return make_failure(request.case, kind="exception", detail="ZeroDivisionError")


@pytest.mark.parametrize(("case", "ranks"), [(ONE, [0]), (EIGHT, [0, 7])])
def test_the_first_and_the_last_rank_are_counted(case, ranks):
    counter = FakeCounter()

    assert not isinstance(count_case(case, counter, ["here"]), LaunchFailure)
    assert asked(counter) == [(rank, False) for rank in ranks]
    assert {request.import_paths for request in counter.asked} == {("here",)}


def test_a_step_that_raises_is_counted_again_with_its_values_on_both_ranks():
    counter = FakeCounter(needing_values)

    assert count_case(EIGHT, counter).computed
    assert asked(counter) == [(0, False), (0, True), (7, True)]


def test_the_values_of_a_script_are_computed_at_once():
    run = ScriptRun(script="train.py", args=(), samples=4)
    counter = FakeCounter(needing_values)

    count_case(msgspec.structs.replace(EIGHT, script=run), counter)

    assert asked(counter) == [(0, True), (7, True)]


def test_a_step_that_raises_with_its_values_too_is_a_failure():
    counter = FakeCounter(lambda request: make_failure(request.case, kind="exception"))

    assert isinstance(count_case(ONE, counter), LaunchFailure)
    assert asked(counter) == [(0, False), (0, True)]


def test_a_computed_count_that_takes_too_long_says_why_values_were_computed():
    counter = FakeCounter(
        lambda request: (
            make_failure(request.case, kind="hang", detail="no progress")
            if request.compute
            else make_failure(request.case, kind="exception", detail="its result depends on values")
        )
    )

    failure = count_case(ONE, counter)

    assert failure.kind == "hang"
    assert "no progress" in failure.detail
    assert "its result depends on values" in failure.detail


def test_a_last_rank_that_raises_without_values_is_counted_with_them():
    counter = FakeCounter(
        lambda request: needing_values(request) if request.rank else make_step_work()
    )

    assert not count_case(EIGHT, counter).computed
    assert asked(counter) == [(0, False), (7, False), (7, True)]


@pytest.mark.parametrize("kind", ["signal", "hang", "exit", "server"])
def test_a_rank_that_ended_in_another_way_is_not_counted_with_values(kind):
    """Values need memory and time, of which it may have had too little already."""
    counter = FakeCounter(lambda request: make_failure(request.case, kind=kind))

    assert count_case(ONE, counter).kind == kind
    assert asked(counter) == [(0, False)]


def test_a_last_rank_that_fails_is_a_failure():
    counter = FakeCounter(
        lambda request: make_failure(request.case, rank=7) if request.rank else make_step_work()
    )

    assert count_case(EIGHT, counter).rank == 7


def test_ranks_with_other_collectives_are_a_failure_that_names_both():
    counter = FakeCounter(
        lambda request: make_step_work(collectives=(reduced(8 if request.rank else 4),))
    )

    failure = count_case(EIGHT, counter)

    assert failure.kind == "disagreement"
    assert "rank 0 and rank 7 would wait for each other" in failure.detail
    assert "4 bytes" in failure.detail
    assert "8 bytes" in failure.detail
