"""A suite of collectives: its cases, and the errors it refuses."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.metric import gated_metrics
from ddp_perf.errors import ConfigError
from tests.builders import make_collectives
from tests.unit.config.refusals import refusal


def test_collective_cases_are_named_by_kind_world_size_and_payload():
    cases = make_collectives(sizes=["1MiB", "1KiB"], world_sizes=[4, 2])

    assert [case.id for case in cases] == [
        *("all_reduce-ws2-1KiB", "all_reduce-ws4-1KiB"),
        *("all_reduce-ws2-1MiB", "all_reduce-ws4-1MiB"),
        *("broadcast-ws2-1KiB", "broadcast-ws4-1KiB"),
        *("broadcast-ws2-1MiB", "broadcast-ws4-1MiB"),
    ]
    assert [case.collective.payload for case in cases] == [2**10, 2**10, 2**20, 2**20] * 2


def test_collectives_gate_only_times():
    timed, tailed = (
        make_collectives(tolerances={"step_time": 0.1, "tail": tail})[0] for tail in (None, 0.2)
    )

    assert gated_metrics(timed) == ["step_time"]
    assert gated_metrics(tailed) == ["step_time", "tail"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"world_sizes": [1, 2]}, "world_sizes: one rank has no other to exchange data with"),
        ({"world_sizes": [3]}, "sizes: 1KiB of float32 cannot be divided evenly among 3 ranks"),
        ({"sizes": ["1MiB", "1024KiB"]}, "sizes: 1MiB is listed twice"),
        ({"collectives": ["broadcast"] * 2}, "collectives: broadcast is listed twice"),
        ({"sizes": ["1MB"]}, "sizes[0]: write whole KiB, MiB or GiB, as in 64KiB"),
        ({"sizes": []}, "sizes: "),
        ({"sizes": ...}, "sizes: required, but missing"),
        ({"collectives": ["allreduce"]}, "'allreduce' is not one of all_reduce, reduce_scatter"),
        ({"batch_sizes": [1]}, "batch_sizes: unknown field"),
        ({"tolerances": {"efficiency": 0.1}}, "tolerances.efficiency: unknown field"),
        ({"warmup": 12}, "warmup: 12 warm-ups leave nothing to measure of 12 steps"),
    ],
)
def test_impossible_collectives_are_refused_with_their_field(collectives_suite, change, said):
    assert said in refusal(collectives_suite(**change))


def test_overrides_leave_out_one_rank_for_collectives(collectives_suite):
    cases = load_cases([collectives_suite(sizes=["1KiB"])], Overrides(world_sizes=(1, 4), steps=30))

    assert [case.id for case in cases] == ["all_reduce-ws4-1KiB", "broadcast-ws4-1KiB"]
    assert {case.schedule.steps for case in cases} == {30}


def test_swept_environments_are_cases_of_their_own(collectives_suite):
    env = (("NCCL_ALGO", "Ring"), ("NCCL_ALGO", "Tree"))

    cases = load_cases(
        [collectives_suite(sizes=["1KiB"], collectives=["all_reduce"])], Overrides(env=env)
    )

    assert [case.id for case in cases] == [
        "all_reduce-ws2-1KiB-NCCL_ALGO=Ring",
        "all_reduce-ws2-1KiB-NCCL_ALGO=Tree",
    ]


def test_world_size_1_leaves_no_collective(collectives_suite):
    assert load_cases([collectives_suite()], Overrides(world_sizes=(1,))) == []


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"world_sizes": (3,)}, ", changed by the command line: sizes: 1KiB"),
        ({"steps": 2}, "--ddp-steps counts the warm-ups too"),
    ],
)
def test_overrides_that_do_not_apply_to_collectives_are_refused(collectives_suite, overrides, said):
    assert said in refusal(collectives_suite(), **overrides)


def test_a_batch_size_is_refused_if_no_suite_trains(collectives_suite):
    with pytest.raises(ConfigError, match="--ddp-batch-sizes: no selected suite trains"):
        load_cases([collectives_suite()], Overrides(batch_sizes=(8,)))
