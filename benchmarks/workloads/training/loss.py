"""The loss of a batch."""

import torch
from torch import nn
from torch.nn import functional

from ddp_perf.workloads.workload import Batch


def loss_of(module: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean cross-entropy of the classes."""
    features, labels = batch
    logits = module(features)
    return functional.cross_entropy(logits, labels)
