"""The steps of a launch: those that wait long for a core are disturbed, on any rank."""

from __future__ import annotations

import msgspec
import pytest

from ddp_perf.core.launch import Collective, RankConditions, waited_long
from tests.builders import make_case, make_launch, make_rank_result, make_structure


def launch_of(*waits):
    """Return a launch of steps of 100 ms whose ranks waited so long, in ms; (): unknown."""
    steps = (0.1,) * max(map(len, waits))
    ranks = tuple(
        make_rank_result(rank, step_s=steps, waited_s=tuple(ms / 1e3 for ms in of_rank))
        for rank, of_rank in enumerate(waits)
    )
    return msgspec.structs.replace(make_launch(make_case()), ranks=ranks)


def test_a_wait_of_more_than_a_fiftieth_of_the_step_is_long():
    step_s, waited_s = [1.0, 1.0, 0.1, 0.1], [0.0199, 0.0201, 0.0201, 0.0]

    assert waited_long(step_s, waited_s) == [False, True, True, False]


def test_waits_that_are_unknown_are_not_long():
    assert waited_long([0.1, 0.1], []) == []


def test_waits_of_other_steps_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        waited_long([0.1, 0.1], [0.0])


def test_a_step_is_disturbed_if_any_rank_waited_long_in_it():
    launch = launch_of((0, 50, 0, 50), (0, 0, 50, 50))

    assert launch.disturbed == [False, True, True, True]


def test_short_waits_of_several_ranks_disturb_no_step():
    assert launch_of((1.9, 0), (1.9, 0)).disturbed == [False, False]


@pytest.mark.parametrize(
    "waits", [((), ()), ((50, 50), ()), ((), (50, 50))], ids=["no rank", "rank 0", "rank 1"]
)
def test_without_a_witness_on_every_rank_no_step_is_known_to_be_disturbed(waits):
    assert launch_of(*waits).disturbed == []


@pytest.mark.parametrize(
    ("own_quota", "disturbed"),
    [(None, [False, True]), (0.0, [False, True]), (0.02, [False, True]), (0.021, [])],
)
@pytest.mark.parametrize("of_rank", [0, 1])
def test_waits_are_no_witness_if_a_rank_used_up_its_own_quota(own_quota, disturbed, of_rank):
    """The quota makes it wait, and is a part of the step's cost."""
    launch = launch_of((0, 50), (0, 0))
    ranks = list(launch.ranks)
    conditions = RankConditions(own_quota=own_quota)
    ranks[of_rank] = msgspec.structs.replace(ranks[of_rank], conditions=conditions)

    assert msgspec.structs.replace(launch, ranks=tuple(ranks)).disturbed == disturbed


def test_a_quota_that_others_used_up_leaves_the_witness():
    launch = launch_of((0, 50), (0, 0))
    conditions = RankConditions(quota=0.5)
    ranks = [msgspec.structs.replace(rank, conditions=conditions) for rank in launch.ranks]

    assert msgspec.structs.replace(launch, ranks=tuple(ranks)).disturbed == [False, True]


@pytest.mark.parametrize(
    ("buckets", "kinds", "strategy"),
    [
        ((), (), "none"),
        ((3232,), ("all_reduce",), "ddp"),
        ((), ("all_gather", "reduce_scatter"), "fsdp"),
        ((), ("all_reduce",), "script"),
    ],
)
def test_a_structure_shows_the_strategy_of_a_script(buckets, kinds, strategy):
    calls = tuple(Collective(kind=kind, dtype="float32", bytes=4) for kind in kinds)

    assert make_structure(buckets=buckets, collectives=calls).strategy == strategy
