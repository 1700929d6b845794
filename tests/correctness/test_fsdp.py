"""FSDP2 trains as DDP does, with sharded parameters."""

from __future__ import annotations

import math

import pytest

from tests.correctness.training import (
    FOUR,
    TOLERANCES,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    launch,
    reference,
    relative_error,
)
from tests.correctness.workloads.models import build_model

OPTIONS = [
    pytest.param({}, id="defaults"),
    pytest.param({"wrap": "model"}, id="wrap_model"),
    pytest.param({"reshard_after_forward": False}, id="no_reshard"),
    pytest.param({"cpu_offload": True}, id="cpu_offload"),
]
MIB = 2**20
# glibc keeps freed memory, which would then be part of the peak. With these it returns it.
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}


def unit_bytes(world_size, model="Transformer", itemsize=4):
    """Return the gathered bytes of each block and of the rest; rows are padded to the ranks."""
    module = build_model(model, "float32")
    units = {f"blocks.{i}.": 0 for i in range(len(module.blocks))} | {"": 0}
    for name, parameter in module.named_parameters():
        unit = next(prefix for prefix in units if name.startswith(prefix))
        rows = math.ceil(parameter.shape[0] / world_size) * world_size
        units[unit] += itemsize * rows * math.prod(parameter.shape[1:])
    *blocks, rest = units.values()
    return blocks, rest


@pytest.mark.parametrize("world_size", [1, 2, FOUR])
@pytest.mark.parametrize("options", OPTIONS)
def test_fsdp_equals_one_process_on_the_whole_batch(trained, world_size, options):
    sharded = trained("Transformer", world_size, strategy="fsdp", fsdp=options)

    assert_equals_reference(sharded, reference("Transformer"), TOLERANCES["float64"])


@pytest.mark.parametrize("model", ["Mlp", "Transformer"])
def test_fsdp_and_ddp_train_alike(trained, model):
    """In float32, in which both differ a little from the reference."""
    sharded = trained(model, 2, strategy="fsdp", dtype="float32").ranks[0]
    whole = trained(model, 2, strategy="ddp", dtype="float32").ranks[0]

    for one, other in zip(sharded.parameters, whole.parameters, strict=True):
        assert relative_error(one, other) < TOLERANCES["float32"]


@pytest.mark.parametrize("world_size", [2, FOUR])
@pytest.mark.parametrize("options", OPTIONS)
def test_each_rank_stores_its_share_of_every_parameter(trained, world_size, options):
    sharded = trained("Transformer", world_size, strategy="fsdp", fsdp=options)

    for name, parameter in build_model("Transformer", "float64").named_parameters():
        rows, *others = parameter.shape
        share = math.ceil(rows / world_size)
        shapes = [rank.shards[name] for rank in sharded.ranks]
        stored = [min(share, max(0, rows - rank * share)) for rank in range(world_size)]
        assert shapes == [(count, *others) for count in stored]


def test_ddp_shards_nothing(trained):
    assert trained("Transformer", 2).ranks[0].shards == {}


@pytest.mark.parametrize(
    "options",
    [OPTIONS[0], pytest.param({"wrap": "model"}, marks=pytest.mark.slow)],
)
def test_all_ranks_gather_the_same_bits(trained, options):
    sharded = trained("Transformer", 4, strategy="fsdp", fsdp=options, dtype="float32")

    assert_ranks_have_the_same_bits(sharded)


@pytest.mark.parametrize("world_size", [2, FOUR])
@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[-1]])
def test_a_block_is_gathered_for_forward_and_for_backward(trained, world_size, options):
    """The rest of the model is gathered once and kept between forward and backward."""
    sharded = trained("Transformer", world_size, strategy="fsdp", fsdp=options, dtype="float32")
    blocks, rest = unit_bytes(world_size)

    assert sorted(sharded.collectives) == sorted(
        [
            *(("all_gather", "float32", size) for size in [rest, *blocks, *blocks]),
            *(("reduce_scatter", "float32", size) for size in [*blocks, rest]),
        ]
    )


def test_without_resharding_a_block_is_gathered_once(trained):
    options = {"reshard_after_forward": False}
    sharded = trained("Transformer", 2, strategy="fsdp", fsdp=options, dtype="float32")
    blocks, rest = unit_bytes(2)

    assert sorted(sharded.collectives) == sorted(
        (kind, "float32", size)
        for kind in ("all_gather", "reduce_scatter")
        for size in [*blocks, rest]
    )


def test_wrapping_the_whole_model_gathers_it_at_once(trained):
    sharded = trained("Transformer", 2, strategy="fsdp", fsdp={"wrap": "model"}, dtype="float32")
    blocks, rest = unit_bytes(2)

    whole = sum(blocks) + rest
    assert sharded.collectives == [
        ("all_gather", "float32", whole),
        ("all_gather", "float32", whole),
        ("reduce_scatter", "float32", whole),
    ]


def test_half_precision_gathers_half_the_bytes_and_reduces_in_float32(trained):
    sharded = trained("Transformer", 2, strategy="fsdp", precision="bf16", dtype="float32")
    blocks, rest = unit_bytes(2, itemsize=2)

    gathered = [c for c in sharded.collectives if c[0] == "all_gather"]
    reduced = [c for c in sharded.collectives if c[0] == "reduce_scatter"]
    assert sorted(gathered) == sorted(
        ("all_gather", "bfloat16", size) for size in [rest, *blocks, *blocks]
    )
    assert sorted(reduced) == sorted(
        ("reduce_scatter", "float32", 2 * size) for size in [*blocks, rest]
    )


@pytest.mark.parametrize("offload", [False, True])
def test_shards_are_on_the_device_unless_they_are_offloaded(trained, tier, offload):
    sharded = trained("Transformer", 2, strategy="fsdp", fsdp={"cpu_offload": offload})

    device = "cuda" if tier == "gpu" and not offload else "cpu"
    assert [rank.devices for rank in sharded.ranks] == [{device}, {device}]


@pytest.mark.slow
def test_sharding_saves_memory(launcher, case_of, tmp_path):
    """Parameters, gradients and momentum are 16 MiB each, and each rank stores half of them."""

    def peak(strategy, **fields):
        model = {"path": str(tmp_path), "model": "Wide", "dtype": "float32", "steps": 0}
        case = case_of("recorded:build", 2, model, strategy=strategy, env=RETURN_MEMORY, **fields)
        return max(rank.peak_memory for rank in launch(launcher, case).ranks)

    by_block = peak("fsdp")
    assert peak("ddp") - by_block > 16 * MIB
    assert (
        peak("fsdp", fsdp={"wrap": "model"}) - by_block > 8 * MIB
    )  # wrap: model gathers all at once


def test_wrapping_without_named_blocks_is_refused(failure, tmp_path):
    model = {"path": str(tmp_path), "model": "Normalised", "steps": 1}

    found = failure("recorded:build", 2, model, strategy="fsdp")

    assert found.kind == "exception"
    assert "fsdp.wrap: block: the workload names no blocks" in found.detail
