"""One of the suite's own workloads in float64. Rank 0 writes its parameters at the end."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.distributed.tensor import DTensor

from ddp_perf.workloads.workload import find_builder


def build(context, *, workload, path="", after_steps=0, **model):
    """Build it with plain SGD, since Adam would hide a wrong scale of the gradient."""
    built = find_builder(workload)(context, **model)
    built.model.double()
    batch = tuple(t.double() if t.is_floating_point() else t for t in built.batch)
    step = 0

    def loss(module, batch):
        nonlocal step
        if path and step == after_steps:
            parameters = [whole(parameter.detach()) for parameter in module.parameters()]
            if context.rank == 0:
                torch.save(parameters, path)
        step += 1
        return built.loss(module, batch)

    return replace(built, batch=batch, loss=loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.01))


def whole(parameter):
    """Return the parameter, gathered if it is sharded."""
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
