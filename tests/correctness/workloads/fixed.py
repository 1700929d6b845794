"""A workload that trains on one batch. Its ranks write their parameters after some steps.

They do so after the optimizer's step, which the host also runs with a CUDA graph.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ddp_perf.workloads.workload import Workload
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of


def build(context, *, path, model, steps):
    """Build it in float64, with the rank's own share of the global batch."""
    module = build_model(model, "float64").to(context.device)
    shares = (part.chunk(context.world_size) for part in global_batch(0, "float64"))
    done = 0

    def note(*_):
        nonlocal done
        done += 1
        if done == steps:
            parameters = {name: p.detach().cpu() for name, p in module.named_parameters()}
            torch.save(parameters, Path(path) / f"rank{context.rank}")

    def optimizer(parameters):
        made = optimizer_of(parameters)
        made.register_step_post_hook(note)
        return made

    return Workload(
        model=module,
        batch=tuple(share[context.rank].to(context.device) for share in shares),
        loss=loss_of,
        optimizer=optimizer,
    )
