"""A workload whose ranks write down what they compute in their first steps."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from ddp_perf.workloads.workload import Workload
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of


def build(context, *, path, model, dtype="float64", steps, seed_by_rank=False, tamper=-1):
    """Records ``steps`` steps of ``model`` in ``path``.

    ``seed_by_rank``: every rank starts from other parameters. ``tamper``: the rank that
    changes a parameter by itself, after every step.
    """
    module = build_model(model, dtype, context.rank if seed_by_rank else 0).to(context.device)
    recorder = Recorder(module, Path(path) / f"rank{context.rank}", steps)

    def loss(wrapped, batch):
        value = loss_of(wrapped, batch)
        recorder.losses.append(value.detach())
        return value

    def optimizer(parameters):
        optimizer = optimizer_of(parameters)
        optimizer.register_step_pre_hook(lambda *_: recorder.before_update())
        optimizer.register_step_post_hook(lambda *_: recorder.after_update())
        if context.rank == tamper:
            optimizer.register_step_post_hook(lambda *_: _tamper(module))
        return optimizer

    return Workload(
        model=module,
        batch=own_batches(context, dtype),
        loss=loss,
        optimizer=optimizer,
        blocks=list(getattr(module, "blocks", ())),
    )


class Recorder:
    """Gradients and parameters of each step, put together where they are sharded."""

    def __init__(self, module: nn.Module, path: Path, steps: int) -> None:
        self._module = module
        self._path = path
        self._left = steps
        self.losses: list[torch.Tensor] = []
        self._gradients: list[dict[str, torch.Tensor]] = []
        self._parameters: list[dict[str, torch.Tensor]] = []
        self._buffers: list[dict[str, torch.Tensor]] = []

    def before_update(self) -> None:
        if self._left > 0:
            named = self._module.named_parameters()
            self._gradients.append({n: whole(p.grad) for n, p in named if p.grad is not None})

    def after_update(self) -> None:
        self._left -= 1
        if self._left < 0:
            return
        self._parameters.append({n: whole(p) for n, p in self._module.named_parameters()})
        self._buffers.append({n: whole(b) for n, b in self._module.named_buffers()})
        if self._left == 0:
            self._save()

    def _save(self) -> None:
        record = {
            "losses": [loss.item() for loss in self.losses],
            "gradients": self._gradients,
            "parameters": self._parameters,
            "buffers": self._buffers,
            "shards": {
                name: tuple(parameter.to_local().shape)
                for name, parameter in self._module.named_parameters()
                if isinstance(parameter, DTensor)
            },
        }
        torch.save(record, self._path)


def own_batches(context, dtype):
    """This rank's share of each micro-step's global batch."""
    step = 0
    while True:
        shares = (part.chunk(context.world_size) for part in global_batch(step, dtype))
        yield tuple(share[context.rank].to(context.device) for share in shares)
        step += 1


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in the host's memory, put together where it is sharded."""
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.cpu().clone()


def _tamper(module: nn.Module) -> None:
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] += 1e-12
