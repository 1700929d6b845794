"""After the seeds are set, each generator that a user's code may use draws the same again."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from ddp_perf.worker.steps.protocol import seed_all


@pytest.mark.parametrize(
    "draw",
    [random.random, np.random.rand, lambda: torch.rand(()).item()],
    ids=["random", "numpy", "torch"],
)
def test_a_seeded_generator_draws_the_same_again(draw):
    seed_all()
    first = draw()

    assert draw() != first
    seed_all()
    assert draw() == first
