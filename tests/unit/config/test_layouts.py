"""The layout of cases over nodes: their ids, fingerprints, denominators, and refusals."""

from __future__ import annotations

import pytest

from ddp_perf.config.loading import Overrides, load_cases
from ddp_perf.errors import ConfigError
from tests.builders import make_collectives


@pytest.fixture
def loaded(suite_file):
    """Return the cases of a suite, with so many ranks on a node."""

    def load(ranks_per_node, **changes):
        return load_cases([suite_file(**changes)], Overrides(ranks_per_node=ranks_per_node))

    return load


def test_a_case_of_more_ranks_than_a_node_has_several_nodes(loaded):
    cases = loaded(8, world_sizes=[1, 4, 8, 16])

    assert [case.id for case in cases] == [
        "mlp-none-fp32-ws1-b64",
        "mlp-ddp-fp32-ws4-b64",
        "mlp-ddp-fp32-ws8-b64",
        "mlp-ddp-fp32-ws16-2x8-b64",
    ]
    assert [(case.nodes, case.ranks_per_node) for case in cases] == [(1, 1), (1, 4), (1, 8), (2, 8)]
    assert {case.single for case in cases[1:]} == {cases[0].id}


def test_each_layout_of_as_many_ranks_is_another_case(loaded):
    layouts = [loaded(size, world_sizes=[16])[0] for size in (None, 8, 4)]

    assert [case.id.split("-b64")[0] for case in layouts] == [
        "mlp-ddp-fp32-ws16",
        "mlp-ddp-fp32-ws16-2x8",
        "mlp-ddp-fp32-ws16-4x4",
    ]
    assert [case.work().get("nodes") for case in layouts] == [None, 2, 4]


def test_a_collective_over_nodes_has_an_id_of_its_own():
    ids = [case.id for case in make_collectives(world_sizes=[2, 4], ranks_per_node=2)]

    assert ids[:2] == ["all_reduce-ws2-1KiB", "all_reduce-ws4-2x2-1KiB"]


@pytest.mark.parametrize(("ranks", "per_node"), [(12, 8), (9, 8), (3, 2)])
def test_ranks_that_do_not_fill_their_nodes_are_refused_with_the_remedy(loaded, ranks, per_node):
    with pytest.raises(ConfigError) as error:
        loaded(per_node, world_sizes=[1, ranks])

    assert str(error.value).endswith(
        f"world_sizes: {ranks} ranks cannot share nodes of {per_node} ranks evenly; choose another"
        " --ddp-world-sizes or nproc_per_node of the cluster file"
    )
    assert "suite.yaml, changed by the command line: " in str(error.value)


HYBRID = {"strategy": "fsdp", "techniques": {"hybrid": {"fsdp": {"replicate": "nodes"}}}}


def test_hybrid_sharding_is_a_case_of_its_own_on_several_nodes_only(loaded):
    cases = loaded(2, world_sizes=[1, 2, 4], **HYBRID)

    assert [case.id for case in cases][1:] == [
        "mlp-fsdp-fp32-ws2-b64",
        "mlp-fsdp-fp32-ws4-2x2-b64",
        "mlp-fsdp-fp32-ws4-2x2-b64-hybrid",
    ]
    assert [case.replicates for case in cases] == [False, False, False, True]


def test_the_group_of_a_hook_is_a_number_or_the_ranks_of_a_node(loaded):
    hooks = [None, {"kind": "hierarchical", "group_size": "node"}]
    cases = loaded(4, world_sizes=[2, 8], comm_hooks=hooks)

    assert [case.group_size for case in cases] == [None, 2, None, 4]
    assert cases[3].id == "mlp-ddp-fp32-ws8-2x4-b64-hierarchical-group_size=node"
    assert cases[3].work()["comm_hook.group_size"] == "node"
