"""Emulated cases of a suite: their ids, what they are compared with, and what is refused."""

from __future__ import annotations

import pytest

from ddp_perf.baselines.save import determining_work
from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.core.case import curve_label, scaling_key
from ddp_perf.core.injection import parse_injection
from tests.builders import make_cases
from tests.unit.config.refusals import refusal

NETWORK = "intra=1GB/s"
TEXT = "intra=1GB/s,intra_latency=5.7us"
HSDP = {"strategy": "fsdp", "fsdp": {"replicate": "nodes"}}
NODE_HOOK = {"comm_hooks": [{"kind": "hierarchical", "group_size": "node"}]}
FOURS = "gpus_per_node=4,intra=9GB/s,inter=1GB/s"
HALF_FULL = {"world_sizes": [2], "emulated": [6], "network": FOURS}


def test_an_emulated_case_has_an_id_of_its_own_and_its_one_rank_case():
    one, two, eight, many = make_cases(emulated=[64, 8], network=NETWORK)

    assert [case.id for case in (eight, many)] == [
        "mlp-ddp-fp32-ws8-emulated-b64",
        "mlp-ddp-fp32-ws64-emulated-b64",
    ]
    assert (two.network, many.network) == (None, TEXT)
    assert (many.world_size, many.run_ranks, many.samples_per_step) == (64, 1, 64 * 64)
    assert (two.run_ranks, many.single) == (2, one.id)
    assert curve_label(many.id, 64) == "mlp-ddp-fp32-emulated-b64"


def test_emulated_and_measured_cases_do_other_work_and_are_on_other_curves():
    _, measured, emulated = make_cases(emulated=[2], network=NETWORK)
    *_, other = make_cases(emulated=[2], network="intra=2GB/s")

    assert measured.world_size == emulated.world_size
    assert len({scaling_key(case.work()) for case in (measured, emulated, other)}) == 3


def test_a_network_that_is_written_otherwise_is_the_same_work():
    *_, one = make_cases(emulated=[2], network=NETWORK)
    *_, other = make_cases(emulated=[2], network="intra_latency=5.7us, intra=1.0GB/s")

    assert one.work() == other.work()


def test_the_structure_does_not_depend_on_the_network():
    one, other, *_ = (
        determining_work(case.work())
        for text in (NETWORK, "intra=2GB/s")
        for case in make_cases(world_sizes=[1], emulated=[2], network=text)[1:]
    )
    (_, measured) = make_cases(world_sizes=[1, 2])

    assert one == other == determining_work(measured.work())


def test_only_the_rank_that_runs_can_lag():
    _, _, case = make_cases(emulated=[2], network=NETWORK)

    assert parse_injection("straggler:0:5ms").applies_to(case)
    assert not parse_injection("straggler:1:5ms").applies_to(case)


def test_a_technique_is_compared_with_the_emulated_case_without_it():
    cases = make_cases(
        world_sizes=[1], emulated=[8], network=NETWORK, techniques={"bf16": {"precision": "bf16"}}
    )
    (changed,) = [case for case in cases if case.network and case.technique]

    assert changed.id == "mlp-ddp-bf16-ws8-emulated-b64-bf16"
    assert changed.base == "mlp-ddp-fp32-ws8-emulated-b64"


def test_a_cluster_does_not_change_the_emulated_cases():
    *_, case = make_cases(
        world_sizes=[2],
        emulated=[8],
        network=FOURS,
        ranks_per_node=2,
    )

    assert (case.nodes, case.run_ranks) == (1, 1)
    assert case.id == "mlp-ddp-fp32-ws8-emulated-b64"


def test_training_follows_the_nodes_of_the_network():
    """The mesh and the hook's groups are those of as many real nodes; one rank of one host runs."""
    *_, mesh = make_cases(world_sizes=[2], emulated=[8], network=FOURS, **HSDP)
    *_, hook = make_cases(world_sizes=[2], emulated=[8], network=FOURS, **NODE_HOOK)
    *_, flat = make_cases(world_sizes=[2], emulated=[8], network=NETWORK, **HSDP)

    assert (mesh.layout, mesh.replicates, mesh.nodes, mesh.run_ranks) == ((2, 4), True, 1, 1)
    assert (hook.layout, hook.group_size) == ((2, 4), 4)
    assert (flat.layout, flat.replicates) == ((1, 8), False)


@pytest.mark.parametrize("suite", [HSDP, NODE_HOOK])
def test_what_follows_nodes_has_the_structure_of_as_many_real_ones(suite):
    *_, emulated = make_cases(world_sizes=[2], emulated=[8], network=FOURS, **suite)
    *_, real = make_cases(world_sizes=[8], ranks_per_node=4, **suite)
    *_, of_two = make_cases(
        world_sizes=[2], emulated=[8], network=FOURS.replace("4", "2", 1), **suite
    )

    assert determining_work(emulated.work()) == determining_work(real.work())
    assert determining_work(emulated.work()) != determining_work(of_two.work())


def test_what_does_not_follow_nodes_may_leave_one_half_full():
    *_, case = make_cases(**HALF_FULL)

    assert (case.layout, case.id) == ((1, 6), "mlp-ddp-fp32-ws6-emulated-b64")
    assert "nodes" not in case.work()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"emulated": [8]}, "emulated: the links between the ranks are missing; add network:"),
        ({"network": NETWORK}, "network: it is that of emulated cases, and the suite has none"),
        (
            {"emulated": [8], "network": "intra=1GB/s,busy=1ns/B", "tier": "gpu"},
            "network: busy is CPU time of gloo, and NCCL takes none; leave it out",
        ),
        ({"emulated": [1], "network": NETWORK}, "emulated: one rank has no other; take 2 or more"),
        ({"emulated": [8, 8], "network": NETWORK}, "emulated: 8 is listed twice"),
        (
            {"emulated": [8], "network": "intra=1"},
            "network: intra=1: intra=1 is no number of GB/s above 0",
        ),
        (
            {"emulated": [8], "network": NETWORK, "strategy": "none", "world_sizes": [1]},
            "emulated: strategy none has no collectives",
        ),
        (
            {
                "emulated": [8],
                "network": NETWORK,
                "comm_hooks": [{"kind": "hierarchical", "group_size": 3}],
                "world_sizes": [3],
            },
            "comm_hooks: groups of 3 ranks do not divide 8",
        ),
        (
            {**HALF_FULL, **NODE_HOOK},
            "emulated: 6 ranks do not fill nodes of 4, which a hook needs; choose another number",
        ),
        (
            {**HALF_FULL, **HSDP},
            "emulated: 6 ranks do not fill nodes of 4, which fsdp.replicate needs",
        ),
        (
            {"emulated": [3], "network": NETWORK, "batch_sizes": {"global": [8]}},
            "batch_sizes.global: 3 ranks cannot share 8 samples evenly",
        ),
    ],
)
def test_what_cannot_be_emulated_is_refused(suite_file, changes, said):
    assert refusal(suite_file(**changes)).startswith(said)


def test_the_command_line_leaves_only_the_emulated_cases_it_asks_for(suite_file):
    path = suite_file(emulated=[4], network=NETWORK)
    cases = load_cases([path], Overrides(emulated=(8, 16)))

    assert [case.world_size for case in cases] == [8, 16]
    assert {case.network for case in cases} == {TEXT}


def test_the_command_line_may_give_the_network_of_a_suite_without_one(suite_file):
    (case,) = load_cases([suite_file()], Overrides(emulated=(8,), network="intra=3GB/s"))

    assert case.network == "intra=3GB/s,intra_latency=5.7us"
    assert "add network:" in refusal(suite_file(), emulated=(8,))


def test_the_command_line_leaves_out_a_suite_that_so_many_ranks_cannot_share(suite_file):
    shared = suite_file(name="shared.yaml", suite="shared", batch_sizes={"global": [32]})
    paths = [shared, suite_file(name="each.yaml", suite="each", batch_sizes=[4])]
    of_64 = {"emulated": (64,), "network": NETWORK}

    assert [case.suite for case in load_cases(paths, Overrides(**of_64))] == ["each"]
    both = load_cases(paths, Overrides(emulated=(8, 64), network=NETWORK))
    assert [(case.suite, case.world_size) for case in both] == [
        ("shared", 8),
        ("each", 8),
        ("each", 64),
    ]
    assert load_cases([shared], Overrides(**of_64)) == []
    (case,) = load_cases([shared], Overrides(batch_sizes=(64,), **of_64))
    assert case.batch_size == 1
