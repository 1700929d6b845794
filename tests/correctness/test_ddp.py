"""DDP trains as one process does on the whole batch."""

from __future__ import annotations

import pytest

from tests.correctness.training import (
    FOUR,
    STEPS,
    TOLERANCES,
    assert_equals_reference,
    assert_ranks_have_the_same_bits,
    reference,
    relative_error,
)
from tests.correctness.workloads.models import build_model

SMALL_BUCKETS = {"bucket_cap_mb": 0.001}
OPTIONS = [
    pytest.param({}, id="defaults"),
    pytest.param(SMALL_BUCKETS, id="small_buckets"),
    pytest.param({"static_graph": True}, id="static_graph"),
    pytest.param({"gradient_as_bucket_view": True}, id="gradient_as_bucket_view"),
    pytest.param({"broadcast_buffers": False}, id="no_broadcast_buffers"),
    pytest.param({"find_unused_parameters": True}, id="find_unused_parameters"),
]


@pytest.mark.parametrize("model", ["Mlp", "Transformer"])
@pytest.mark.parametrize("world_size", [1, 2, FOUR])
def test_ddp_equals_one_process_on_the_whole_batch(trained, model, world_size):
    assert_equals_reference(trained(model, world_size), reference(model), TOLERANCES["float64"])


def test_one_rank_without_ddp_is_the_plain_module(trained):
    single = trained("Mlp", 1, denominator="no-ddp")

    assert single.case.strategy == "none"
    assert single.collectives == []
    assert_equals_reference(single, reference("Mlp"), TOLERANCES["float64"])


@pytest.mark.parametrize("options", OPTIONS)
def test_no_ddp_option_changes_the_result(trained, options):
    changed = trained("Mlp", 2, ddp=options)

    assert_equals_reference(changed, reference("Mlp"), TOLERANCES["float64"])


def test_ddp_in_float32_is_within_rounding_of_the_reference(trained):
    assert_equals_reference(
        trained("Transformer", 2, dtype="float32"),
        reference("Transformer"),
        TOLERANCES["float32"],
    )


def test_training_moves_the_parameters(trained):
    """Otherwise the comparisons would pass although neither ranks nor reference train."""
    start = {n: p.detach() for n, p in build_model("Mlp", "float64").named_parameters()}

    assert relative_error(trained("Mlp", 2).ranks[0].parameters[-1], start) > 0.1


@pytest.mark.parametrize("world_size", [2, FOUR])
@pytest.mark.parametrize("options", [{}, SMALL_BUCKETS], ids=["one_bucket", "many"])
def test_all_ranks_end_with_the_same_bits(trained, world_size, options):
    assert_ranks_have_the_same_bits(
        trained("Transformer", world_size, dtype="float32", ddp=options)
    )


def test_ddp_broadcasts_the_initial_parameters_of_rank_0(trained):
    """Other ranks start from other seeds."""
    differing = trained("Mlp", 4, seed_by_rank=True)

    assert_equals_reference(differing, reference("Mlp"), TOLERANCES["float64"])


def test_each_bucket_is_reduced_once_a_step(trained):
    structure = trained("Transformer", 2, dtype="float32", ddp=SMALL_BUCKETS).structure

    parameters = sum(p.numel() for p in build_model("Transformer", "float32").parameters())
    assert structure.parameters == parameters
    assert structure.gradient_bytes == 4 * parameters == sum(structure.buckets)
    assert len(structure.buckets) > 2
    assert [c.bytes for c in structure.collectives] == list(structure.buckets)
    assert {(c.kind, c.dtype) for c in structure.collectives} == {("all_reduce", "float32")}


@pytest.mark.parametrize("culprit", [0, 2])
def test_a_rank_with_changed_parameters_is_named(failure, tmp_path, culprit):
    model = {"path": str(tmp_path), "model": "Mlp", "steps": STEPS, "tamper": culprit}

    found = failure("recorded:build", 4, model)

    assert (found.kind, found.rank) == ("disagreement", culprit)
    assert "parameters differ" in found.detail


def test_the_ranks_share_the_batch(trained):
    """Their losses differ, and their mean is the loss of the whole batch."""
    one, other = (record.losses[:STEPS] for record in trained("Mlp", 2).ranks)

    means = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
    assert means == pytest.approx(reference("Mlp").losses, rel=1e-12)
    assert one != other
