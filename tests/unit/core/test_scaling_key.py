"""Cases of one scaling curve."""

import pytest

from ddp_perf.core.case import (
    RANKS_AND_STRATEGY,
    Scalar,
    curve_label,
    layout_curves,
    samples_of,
    scaling_key,
    work_without,
)
from tests.builders import make_scripts

WORK: dict[str, Scalar] = {
    "world_size": 2,
    "strategy": "ddp",
    "ddp.bucket_cap_mb": 25,
    "batch_size": 64,
}


def test_cases_that_differ_in_ranks_only_share_a_scaling_key():
    assert scaling_key(WORK) == scaling_key({**WORK, "world_size": 4})
    assert scaling_key(WORK) != scaling_key({**WORK, "batch_size": 128})


def test_cases_of_one_global_batch_share_a_scaling_key():
    strong = {**WORK, "global_batch": 128}

    assert scaling_key(strong) == scaling_key({**strong, "world_size": 4, "batch_size": 32})
    assert scaling_key(strong) != scaling_key({**strong, "global_batch": 256})
    assert scaling_key(strong) != scaling_key(WORK)


def test_work_without_leaves_out_fields_and_groups_of_fields():
    assert work_without(WORK, RANKS_AND_STRATEGY) == {"batch_size": 64}


@pytest.mark.parametrize(
    ("case_id", "ranks", "label"),
    [
        ("mlp-ddp-ws2-b64", 2, "mlp-ddp-b64"),
        ("mlp-ws4-g32", 4, "mlp-g32"),
        ("all_reduce-ws2-1MiB", 2, "all_reduce-1MiB"),
        ("mlp-ddp-ws16-2x8-b64", 16, "mlp-ddp-b64"),
        ("mlp-ws2-b64-2x8", 2, "mlp-b64-2x8"),  # a variant of that name
    ],
)
def test_curve_label_leaves_out_the_ranks(case_id, ranks, label):
    assert curve_label(case_id, ranks) == label


def test_one_rank_one_node_and_two_nodes_share_a_scaling_key():
    assert scaling_key(WORK) == scaling_key({**WORK, "world_size": 16, "nodes": 2})


def layouts_of(*layouts: tuple[int, int]) -> dict[int | None, list[tuple[int, int]]]:
    """The curves of cases, each given as its ranks and nodes."""
    works: list[dict[str, Scalar]] = [
        {**WORK, "world_size": ranks, **({"nodes": nodes} if nodes > 1 else {})}
        for ranks, nodes in layouts
    ]
    return {
        size: [layouts[place] for place in places] for size, places in layout_curves(works).items()
    }


def test_a_curve_goes_from_one_node_to_several_with_as_many_ranks_on_each():
    assert layouts_of((2, 1), (8, 1), (16, 2)) == {8: [(2, 1), (8, 1), (16, 2)]}


def test_as_many_ranks_on_other_nodes_are_on_another_curve():
    assert layouts_of((4, 1), (8, 1), (16, 2), (16, 4)) == {
        4: [(4, 1), (16, 4)],
        8: [(4, 1), (8, 1), (16, 2)],
    }


def test_one_node_has_a_curve_of_its_own_if_it_has_more_ranks_than_any_of_several():
    assert layouts_of((8, 1), (16, 1), (16, 2)) == {
        None: [(8, 1), (16, 1)],
        8: [(8, 1), (16, 2)],
    }
    assert layouts_of((2, 1), (4, 1)) == {None: [(2, 1), (4, 1)]}


def test_the_samples_of_a_scripts_step_are_no_part_of_its_scaling_key():
    one, two = (case.work() for case in make_scripts())
    assert (samples_of(one), samples_of(two)) == (64, 128)
    assert scaling_key(one) == scaling_key(two)


def test_a_script_that_is_told_its_number_of_ranks_has_one_scaling_key():
    told = make_scripts(args=["--devices", "{world_size}"], env={"DEVICES": "{world_size}"})
    one, two = (case.work() for case in told)

    assert scaling_key(one) == scaling_key(two)
    assert [case.script.args[1] + case.env["DEVICES"] for case in told] == ["11", "22"]


def test_samples_of_a_workloads_step_are_those_of_all_ranks_and_micro_steps():
    assert samples_of({**WORK, "gradient_accumulation": 4}) == 2 * 64 * 4
