"""Workloads that only a count can run, or that a count cannot run without computing."""

from __future__ import annotations

import resource
import time

import torch
from torch import nn

from ddp_perf.system.host.control_group import memory_limit
from ddp_perf.workloads.workload import Workload

_WIDTH = 1024
_MOST_MEMORY_KIB = 2 * 2**20


def large_batch(context):
    """Train on a batch of 32 GB, and raise if the rank has touched more than 2 GB."""

    def loss(module, batch):
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if used > _MOST_MEMORY_KIB:
            raise MemoryError(f"{used} KiB are resident")
        return module(batch[0]).mean()

    return _workload(loss, torch.randn(2**23, _WIDTH))


def masked(context):
    """Train on the positive outputs: their number depends on values."""

    def loss(module, batch):
        out = module(batch[0])
        return out[out > 0].mean()

    return _workload(loss, torch.randn(64, _WIDTH))


def beyond_memory(context):
    """Allocate more memory than there is, in blocks that each fit."""
    limit = memory_limit()
    blocks = [torch.empty(2**30, dtype=torch.uint8) for _ in range(limit // 2**30 + 1)]
    return _workload(lambda module, batch: module(blocks[0][:_WIDTH].float()).mean(), blocks[0])


def slow(context):
    """Sleep in the loss, longer than a step may take."""

    def loss(module, batch):
        time.sleep(0.4)
        return module(batch[0]).mean()

    return _workload(loss, torch.randn(4, _WIDTH))


def _workload(loss, inputs):
    return Workload(
        model=nn.Linear(_WIDTH, _WIDTH),
        batch=(inputs,),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
