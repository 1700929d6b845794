"""Strategies that follow the nodes: HSDP and hooks whose group is a node, here 2 × 2 ranks."""

from __future__ import annotations

import math

import pytest

from tests.correctness.test_fsdp import OPTIONS, unit_bytes
from tests.correctness.training import (
    TOLERANCES,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    reference,
)
from tests.correctness.workloads.models import build_model

pytestmark = pytest.mark.slow

MANY = {"bucket_cap_mb": 0.001}
HOOK = {"kind": "hierarchical", "group_size": "node"}


@pytest.fixture(scope="session")
def on_nodes(trained):
    """``on_nodes("Transformer", …)``: four ranks on two nodes."""

    def run(model, **fields):
        return trained(model, 4, ranks_per_node=2, **fields)

    return run


@pytest.fixture(scope="session")
def hybrid(on_nodes):
    """``hybrid(…)``: the same with HSDP."""

    def run(fsdp=None, **fields):
        options = {"replicate": "nodes", **(fsdp or {})}
        return on_nodes("Transformer", strategy="fsdp", fsdp=options, **fields)

    return run


@pytest.mark.parametrize("options", OPTIONS)
def test_hybrid_sharding_equals_one_process_on_the_whole_batch(hybrid, options):
    assert_equals_reference(hybrid(options), reference("Transformer"), TOLERANCES["float64"])


def test_all_ranks_of_hybrid_sharding_gather_the_same_bits(hybrid):
    assert_ranks_have_the_same_bits(hybrid(dtype="float32"))


def test_each_node_stores_all_parameters(hybrid):
    sharded = hybrid()

    for name, parameter in build_model("Transformer", "float64").named_parameters():
        rows, *others = parameter.shape
        halves = [(math.ceil(rows / 2), *others), (rows // 2, *others)]
        assert [rank.shards[name] for rank in sharded.ranks] == halves * 2


def test_hybrid_sharding_gathers_within_a_node_and_reduces_half_between_nodes(hybrid):
    sharded = hybrid(dtype="float32")
    blocks, rest = unit_bytes(2)

    assert sorted(sharded.collectives) == sorted(
        [
            *(("all_gather", "float32", size) for size in [rest, *blocks, *blocks]),
            *(("reduce_scatter", "float32", size) for size in [*blocks, rest]),
            *(("all_reduce", "float32", size // 2) for size in [*blocks, rest]),
        ]
    )


def test_on_one_node_hybrid_sharding_is_plain_sharding(trained):
    options = {"strategy": "fsdp", "dtype": "float32"}
    plain = trained("Transformer", 2, **options)
    hybrid = trained("Transformer", 2, fsdp={"replicate": "nodes"}, **options)

    assert hybrid.collectives == plain.collectives
    assert hybrid.result.ranks[0].digest == plain.result.ranks[0].digest


def test_a_hook_whose_group_is_a_node_equals_one_process(on_nodes):
    hooked = on_nodes("Transformer", comm_hooks=[HOOK], ddp=MANY)

    assert_equals_reference(hooked, reference("Transformer"), TOLERANCES["float64"])


def test_a_hook_whose_group_is_a_node_does_what_its_number_does(on_nodes, trained):
    options = {"ddp": MANY, "dtype": "float32"}
    by_node = on_nodes("Mlp", comm_hooks=[HOOK], **options)
    by_number = trained("Mlp", 4, comm_hooks=[{**HOOK, "group_size": 2}], **options)

    assert by_node.collectives == by_number.collectives
    assert by_node.result.ranks[0].digest == by_number.result.ranks[0].digest


def test_on_one_node_the_group_of_a_hook_has_all_ranks(trained):
    hooked = trained("Mlp", 4, comm_hooks=[HOOK], dtype="float32")

    within = [size for kind, _, size in hooked.collectives if kind == "reduce_scatter"]
    across = [size for kind, _, size in hooked.collectives if kind == "all_reduce"]
    assert [size // 4 for size in within] == across
