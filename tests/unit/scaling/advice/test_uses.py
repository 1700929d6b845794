"""The use of a number of GPUs, and how advice differs from what the document has for it."""

from __future__ import annotations

import pytest

from ddp_perf.scaling.advice.choice import Plan, differences_from, use_of

SHARDED = Plan(sharding="zero3", precision="fp32", batch_size=32)


@pytest.mark.parametrize(
    ("ddp_fits", "why"),
    [
        pytest.param(False, "DDP does not fit", id="does not fit"),
        pytest.param(True, "DDP needs checkpoints and is slower", id="fits with checkpoints"),
    ],
)
def test_sharding_instead_of_ddp_has_its_one_reason(ddp_fits, why):
    found = differences_from(use_of(8, 7e9), SHARDED, None, ddp_fits=ddp_fits)

    assert list(found) == [f"strategy: it recommends DDP; here {why}"]


@pytest.mark.parametrize(
    ("gpus", "parameters", "name"),
    [
        pytest.param(8, 7e9, "production, medium models", id="GPUs"),
        pytest.param(17, 7e9, "production, large models", id="the next more"),
        pytest.param(1000, 7e9, "massive scale", id="more than all"),
        pytest.param(8, 101e9, "massive scale", id="parameters"),
    ],
)
def test_a_use_is_chosen_by_gpus_or_by_more_than_100e9_parameters(gpus, parameters, name):
    assert use_of(gpus, parameters).name == name
