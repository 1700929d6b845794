"""Activation checkpointing and torch.compile do not change the result of a block."""

from __future__ import annotations

import pytest

from tests.correctness.training import (
    STEPS,
    TOLERANCES,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    launch,
    reference,
)

STRATEGIES = [
    pytest.param({"world_size": 1, "denominator": "no-ddp"}, id="none"),
    pytest.param({"world_size": 2}, id="ddp"),
    pytest.param({"world_size": 2, "ddp": {"static_graph": True}}, id="static_graph"),
    pytest.param(
        {"world_size": 2, "ddp": {"find_unused_parameters": True}}, id="find_unused_parameters"
    ),
    pytest.param({"world_size": 2, "gradient_accumulation": 2}, id="accumulation"),
    pytest.param({"world_size": 2, "strategy": "fsdp"}, id="fsdp"),
]


@pytest.mark.parametrize("fields", STRATEGIES)
def test_checkpointing_equals_one_process_on_the_whole_batch(trained, fields):
    checkpointed = trained("Transformer", activation_checkpointing=True, **fields)

    micro_steps = fields.get("gradient_accumulation", 1)
    assert_equals_reference(
        checkpointed,
        reference("Transformer", micro_steps=micro_steps),
        TOLERANCES["float64"],
    )


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_checkpointing_computes_the_forward_of_each_block_twice(
    launcher, case_of, tmp_path, strategy, checkpointing
):
    case = case_of(
        "counted:build",
        2,
        {"path": str(tmp_path), "after_steps": STEPS},
        strategy=strategy,
        activation_checkpointing=checkpointing,
    )
    launch(launcher, case)

    forwards = [int((tmp_path / f"rank{rank}").read_text()) for rank in range(2)]
    assert forwards == [STEPS * (2 if checkpointing else 1)] * 2


def test_checkpointing_without_named_blocks_is_refused(failure, tmp_path):
    model = {"path": str(tmp_path), "model": "Normalised", "steps": 1}

    found = failure("recorded:build", 2, model, activation_checkpointing=True)

    assert "activation_checkpointing: the workload names no blocks" in found.detail


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_compiled_model_trains_as_the_plain_one(trained, strategy):
    """Its blocks are of torch's own classes, which ``Module.compile`` does not compile."""
    compiled = trained("Mlp", 2, strategy=strategy, compile=True, dtype="float32")
    plain = trained("Mlp", 2, strategy=strategy, dtype="float32")

    assert_equals_reference(compiled, reference("Mlp"), TOLERANCES["float32"])
    assert_ranks_have_the_same_bits(compiled)
    assert compiled.structure == plain.structure
    assert (plain.compiled_graphs, compiled.compiled_graphs > 0) == (0, True)
