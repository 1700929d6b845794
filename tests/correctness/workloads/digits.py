"""A classifier of scikit-learn's digits, read from a file of images and digits."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from ddp_perf.workloads.workload import Workload, batches


def build(context, *, digits, after_steps, accuracy):
    """Build it. Rank 0 writes the share of right test digits to the file ``accuracy``."""
    images, targets, test_images, test_targets = torch.load(digits)
    step = 0

    def loss(module, batch):
        nonlocal step
        if step == after_steps and context.rank == 0:
            with torch.no_grad():
                predicted = module(test_images).argmax(1)
            Path(accuracy).write_text(
                str(predicted.eq(test_targets).double().mean().item()), encoding="utf-8"
            )
        step += 1
        return functional.cross_entropy(module(batch[0]), batch[1])

    return Workload(
        model=nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
        batch=batches(TensorDataset(images, targets), context),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    )
