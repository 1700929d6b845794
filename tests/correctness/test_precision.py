"""Half precision: results within the rounding of their formats."""

from __future__ import annotations

import pytest

from ddp_perf.core.launch import LaunchResult
from tests.correctness.training import (
    FSDP,
    LAYER_ROUNDINGS,
    UNIT_ROUNDOFF,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    launch,
    reference,
    relative_error,
)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(("strategy", "world_size"), [("none", 1), ("ddp", 2), ("fsdp", 2)])
def test_half_precision_is_within_rounding(trained, precision, strategy, world_size):
    half = trained(
        "Transformer", world_size, strategy=strategy, precision=precision, dtype="float32"
    )
    expected = reference("Transformer")

    assert_equals_reference(half, expected, LAYER_ROUNDINGS * UNIT_ROUNDOFF[precision])
    for record in half.ranks:  # it is rounded, and parameters stay in float32
        assert relative_error(record.gradients[0], expected.gradients[0]) > 1e-5
        assert {str(p.dtype) for p in record.parameters[0].values()} == {"torch.float32"}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("strategy", ["ddp", FSDP])
def test_all_ranks_end_with_the_same_bits(trained, precision, strategy):
    half = trained("Transformer", 4, strategy=strategy, precision=precision, dtype="float32")

    assert_ranks_have_the_same_bits(half)


def test_autocast_does_not_change_the_bytes_of_ddp(trained):
    """Parameters and gradients are float32; only a hook sends fewer bytes."""
    half = trained("Transformer", 2, precision="bf16", dtype="float32")

    assert half.collectives == trained("Transformer", 2, dtype="float32").collectives


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_an_overflow_of_fp16_skips_the_step_on_every_rank(launcher, case_of, tmp_path, strategy):
    """Only rank 1 overflows in its first steps; GradScaler then halves its scale."""
    model = {"path": str(tmp_path), "steps": 12}
    case = case_of("overflow:build", 2, model, strategy=strategy, precision="fp16", steps=12)
    outcome = launch(launcher, case)

    assert isinstance(outcome, LaunchResult), str(outcome)  # all ranks have the same parameters
    updates = [int((tmp_path / f"rank{rank}").read_text()) for rank in range(2)]
    assert updates[0] == updates[1]
    assert 0 < updates[0] < 12


@pytest.mark.parametrize(
    "tier", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True, scope="session"
)
def test_tf32_is_within_rounding(trained):
    """TF32 is a format of GPUs; the CPU tier refuses it."""
    assert_equals_reference(
        trained("Transformer", 2, precision="tf32", dtype="float32"),
        reference("Transformer"),
        LAYER_ROUNDINGS * UNIT_ROUNDOFF["tf32"],
    )
