"""The distribution of samples to ranks: each once an epoch, in equal shares and a new order."""

from __future__ import annotations

import itertools
import json

import pytest

SAMPLES, BATCH, RANKS = 24, 4, 2
STEPS_PER_EPOCH = SAMPLES // BATCH // RANKS


@pytest.fixture(params=[0, 2], ids=["in-the-rank", "2-workers"])
def epochs(request, launch, tmp_path):
    """The samples of two epochs, for each rank, in order."""
    notes = tmp_path / "samples"
    launch(
        "sampled:build",
        RANKS,
        model={"samples": SAMPLES, "notes": str(notes)},
        data={"num_workers": request.param},
        batch_sizes=[BATCH],
        steps=2 * STEPS_PER_EPOCH,
    )
    ranks = [
        [json.loads(line) for line in (tmp_path / f"samples.{rank}").read_text().splitlines()]
        for rank in range(RANKS)
    ]
    return [
        [list(itertools.chain(*lines[first : first + STEPS_PER_EPOCH])) for lines in ranks]
        for first in (0, STEPS_PER_EPOCH)
    ]


def test_every_sample_is_seen_once_an_epoch_in_equal_shares(epochs):
    for shares in epochs:
        assert [len(share) for share in shares] == [SAMPLES // RANKS] * RANKS
        assert sorted(itertools.chain(*shares)) == list(range(SAMPLES))


def test_every_epoch_has_its_own_order(epochs):
    first, second = epochs

    assert first != second
    assert first[0] != sorted(first[0])


def test_samples_move_between_ranks_from_epoch_to_epoch(epochs):
    first, second = epochs

    assert set(first[0]) != set(second[0])
