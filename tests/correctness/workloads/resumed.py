"""The recorded workload, with a checkpoint before its first step or after its last one."""

from __future__ import annotations

from dataclasses import replace

import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.correctness.workloads import recorded


def build(context, *, steps, save_to="", load_from="", **arguments):
    """Build it. It loads ``load_from`` before the first step and writes ``save_to`` at the end."""
    workload = recorded.build(context, steps=steps, **arguments)
    optimizers = []
    begun = 0

    def optimizer(parameters):
        optimizers.append(workload.optimizer(parameters))
        return optimizers[0]

    def loss(module, batch):
        nonlocal begun
        if begun == 0 and load_from:
            _load(module, optimizers[0], load_from)
        if begun == steps and save_to:
            _save(module, optimizers[0], save_to)
        begun += 1
        return workload.loss(module, batch)

    return replace(workload, loss=loss, optimizer=optimizer)


def _save(module, optimizer, folder):
    model_state, optimizer_state = get_state_dict(module, optimizer)
    checkpoint.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder)


def _load(module, optimizer, folder):
    model_state, optimizer_state = get_state_dict(module, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(
        module,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
