"""Gradient accumulation: a large batch in micro-steps, synchronised once."""

from __future__ import annotations

import pytest

from tests.correctness.training import (
    FOUR,
    FSDP,
    LAYER_ROUNDINGS,
    STEPS,
    TOLERANCES,
    UNIT_ROUNDOFF,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    reference,
)

STRATEGIES = [
    pytest.param({"strategy": "ddp"}, id="ddp"),
    pytest.param({"ddp": {"static_graph": True}}, id="static_graph", marks=pytest.mark.slow),
    pytest.param(
        {"ddp": {"gradient_as_bucket_view": True}}, id="bucket_view", marks=pytest.mark.slow
    ),
    pytest.param({"comm_hooks": [{"kind": "hierarchical", "group_size": 2}]}, id="hierarchical"),
    pytest.param(
        {"comm_hooks": [{"kind": "topk", "ratio": 1.0}]}, id="topk", marks=pytest.mark.slow
    ),
    pytest.param({"strategy": "fsdp"}, id="fsdp"),
    pytest.param(
        {"strategy": "fsdp", "fsdp": {"reshard_after_forward": False}},
        id="no_reshard",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"strategy": "fsdp", "fsdp": {"cpu_offload": True}},
        id="cpu_offload",
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize("fields", STRATEGIES)
@pytest.mark.parametrize("world_size", [2, FOUR])
def test_micro_steps_equal_the_large_batch(trained, fields, world_size):
    accumulated = trained("Transformer", world_size, gradient_accumulation=3, **fields)

    assert_equals_reference(
        accumulated, reference("Transformer", micro_steps=3), TOLERANCES["float64"]
    )


def test_micro_steps_equal_the_large_batch_on_one_rank(trained):
    accumulated = trained("Mlp", 1, denominator="no-ddp", gradient_accumulation=3)

    assert len(accumulated.ranks[0].losses) == 3 * STEPS
    assert_equals_reference(accumulated, reference("Mlp", micro_steps=3), TOLERANCES["float64"])


@pytest.mark.parametrize("fields", STRATEGIES)
def test_gradients_are_synchronised_once_a_step(trained, fields):
    """FSDP must still gather its parameters in every micro-step."""
    accumulated = trained("Transformer", 2, gradient_accumulation=3, **fields)
    at_once = trained("Transformer", 2, **fields)

    def reductions(training):
        gathers = "all_gather" if training.case.strategy == "fsdp" else None
        return [c for c in training.collectives if c[0] != gathers]

    assert reductions(at_once)
    assert reductions(accumulated) == reductions(at_once)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("strategy", ["ddp", FSDP])
def test_half_precision_accumulates(trained, precision, strategy):
    accumulated = trained(
        "Transformer",
        2,
        gradient_accumulation=3,
        precision=precision,
        strategy=strategy,
        dtype="float32",
    )

    assert_equals_reference(
        accumulated,
        reference("Transformer", micro_steps=3),
        LAYER_ROUNDINGS * UNIT_ROUNDOFF[precision],
    )
    assert_ranks_have_the_same_bits(accumulated)


def test_throughput_counts_the_samples_of_every_micro_step(trained):
    assert trained("Mlp", 2, gradient_accumulation=3).case.samples_per_step == 3 * 8
