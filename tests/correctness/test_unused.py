"""Parameters that no forward uses: DDP needs an option for them."""

from __future__ import annotations

import pytest
import torch

from tests.correctness.training import FOUR, STEPS, TOLERANCES, reference, relative_error
from tests.correctness.workloads.models import build_model


def of_used(tensors):
    return {name: tensor for name, tensor in tensors.items() if name.startswith("used.")}


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
@pytest.mark.parametrize("world_size", [2, FOUR])
def test_unused_parameters_stay_and_the_others_are_trained(trained, option, world_size):
    records = trained("PartlyUsed", world_size, ddp={option: True}).ranks
    start = dict(build_model("PartlyUsed", "float64").named_parameters())

    for record in records:
        for actual, expected in zip(
            record.parameters, reference("PartlyUsed").parameters, strict=True
        ):
            assert relative_error(of_used(actual), of_used(expected)) < TOLERANCES["float64"]
            for name in ("unused.weight", "unused.bias"):
                assert torch.equal(actual[name], start[name])


def test_unused_parameters_of_fsdp_stay(trained):
    records = trained("PartlyUsed", 2, strategy="fsdp", fsdp={"wrap": "model"}).ranks
    start = dict(build_model("PartlyUsed", "float64").named_parameters())

    for record in records:
        last = record.parameters[-1]
        expected = reference("PartlyUsed").parameters[-1]
        assert relative_error(of_used(last), of_used(expected)) < TOLERANCES["float64"]
        assert torch.equal(last["unused.weight"], start["unused.weight"])


def test_ddp_refuses_unused_parameters_without_an_option(failure, tmp_path):
    model = {"path": str(tmp_path), "model": "PartlyUsed", "steps": STEPS}

    found = failure("recorded:build", 2, model)

    assert found.kind == "exception"
    assert "find_unused_parameters=True" in found.detail
