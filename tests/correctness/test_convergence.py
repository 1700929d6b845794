"""Convergence on real data: the 1,797 handwritten digits of scikit-learn."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

GLOBAL_BATCH, STEPS = 32, 500


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A file of images and digits for training and for testing."""
    bunch = load_digits()
    images = torch.tensor(bunch.data, dtype=torch.float32) / 16
    targets = torch.tensor(bunch.target)
    path = tmp_path_factory.mktemp("digits") / "digits.pt"
    tested = torch.arange(len(images)) % 3 == 0
    torch.save((images[~tested], targets[~tested], images[tested], targets[tested]), path)
    return path


def test_one_and_two_ranks_learn_the_digits_equally_well(launch, digits, tmp_path):
    accuracies = []
    for ranks in (1, 2):
        path = tmp_path / str(ranks)
        launch(
            "digits:build",
            ranks,
            model={"digits": str(digits), "after_steps": STEPS, "accuracy": str(path)},
            data={"num_workers": 0},
            batch_sizes=[GLOBAL_BATCH // ranks],
            steps=STEPS,
        )
        accuracies.append(float(path.read_text()))

    assert min(accuracies) > 0.95
    assert abs(accuracies[0] - accuracies[1]) <= 0.01
