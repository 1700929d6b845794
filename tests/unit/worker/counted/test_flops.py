"""The operations of a step, compared with torch's own counter."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ddp_perf.worker.counted.flops import FlopCounter

MODELS = {
    "mlp": lambda: (nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)), (8, 64)),
    "convolution": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), (2, 3, 8, 8)),
    "attention": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_flops_equal_those_of_torchs_own_counter(name):
    model, shape = MODELS[name]()
    data = torch.randn(shape)

    with FlopCounter() as ours:
        model(data).square().mean().backward()
    with FlopCounterMode(display=False) as theirs:
        model(data).square().mean().backward()

    assert ours.flops == theirs.get_total_flops() > 0


def test_a_matrix_product_counts_two_flops_for_each_multiply_add():
    with FlopCounter() as counter:
        torch.ones(3, 5) @ torch.ones(5, 7)
        torch.ones(9) + 1

    assert counter.flops == 2 * 3 * 5 * 7
