"""Checkpoints: one rank and four ranks continue from a checkpoint of two ranks."""

from __future__ import annotations

import pytest

from tests.correctness.training import FOUR, STEPS, TOLERANCES, reference, relative_error

SAVED_AFTER = 2
STRATEGIES = [
    pytest.param({"strategy": "ddp"}, id="ddp"),
    pytest.param({"strategy": "fsdp"}, id="fsdp"),
    pytest.param({"strategy": "fsdp", "fsdp": {"cpu_offload": True}}, id="cpu_offload"),
    pytest.param(
        {"activation_checkpointing": True}, id="activation_checkpointing", marks=pytest.mark.slow
    ),
]


@pytest.fixture(scope="session")
def saved(trained, tmp_path_factory):
    """``saved(…)``: the folder of a checkpoint that two ranks wrote after SAVED_AFTER steps."""
    folders = {}

    def save(**fields):
        key = repr(fields)
        if key not in folders:
            folders[key] = str(tmp_path_factory.mktemp("checkpoint"))
            trained(
                "Transformer",
                2,
                workload="resumed",
                steps=SAVED_AFTER,
                save_to=folders[key],
                **fields,
            )
        return folders[key]

    return save


@pytest.mark.parametrize("world_size", [1, FOUR])
@pytest.mark.parametrize("fields", STRATEGIES)
def test_training_from_a_checkpoint_equals_uninterrupted_one(trained, saved, fields, world_size):
    """The checkpoint includes momentum. Training continues on the next batches."""
    later = trained(
        "Transformer",
        world_size,
        workload="resumed",
        steps=STEPS - SAVED_AFTER,
        load_from=saved(**fields),
        first_step=SAVED_AFTER,
        **fields,
    )
    expected = reference("Transformer", steps=STEPS).parameters[SAVED_AFTER:]

    for record in later.ranks:
        for actual, wanted in zip(record.parameters, expected, strict=True):
            assert relative_error(actual, wanted) < TOLERANCES["float64"]


@pytest.mark.parametrize(
    ("saving", "loading"), [("ddp", "fsdp"), pytest.param("fsdp", "ddp", marks=pytest.mark.slow)]
)
def test_a_checkpoint_of_one_strategy_loads_under_the_other(trained, saved, saving, loading):
    later = trained(
        "Transformer",
        4,
        workload="resumed",
        steps=STEPS - SAVED_AFTER,
        load_from=saved(strategy=saving),
        first_step=SAVED_AFTER,
        strategy=loading,
    )

    expected = reference("Transformer", steps=STEPS).parameters[-1]
    assert relative_error(later.ranks[0].parameters[-1], expected) < TOLERANCES["float64"]
