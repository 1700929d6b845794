"""A workload whose ranks record the computations of their first steps in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.tensor import DTensor

from ddp_perf.workloads.workload import Workload
from tests.correctness.workloads.models import build_model, global_batch, loss_of, optimizer_of


def build(
    context,
    *,
    path,
    model,
    dtype="float64",
    steps,
    first_step=0,
    seed_by_rank=False,
    tamper=-1,
):
    """Build it. Each rank records ``steps`` steps of ``model`` in ``path``.

    With ``seed_by_rank`` every rank starts from other parameters. ``tamper`` is a rank that
    changes one of its parameters after every step.
    """
    module = build_model(model, dtype, context.rank if seed_by_rank else 0).to(context.device)
    recorder = Recorder(module, Path(path) / f"rank{context.rank}", steps)

    def loss(wrapped, batch):
        if not recorder.losses:
            recorder.begin()  # not earlier, since loading a checkpoint also runs a step
        value = loss_of(wrapped, batch)
        recorder.losses.append(value.item())
        return value

    def optimizer(parameters):
        recorder.optimizer = optimizer_of(parameters)
        if context.rank == tamper:
            recorder.optimizer.register_step_post_hook(lambda *_: _tamper(module))
        return recorder.optimizer

    return Workload(
        model=module,
        batch=_own_batches(context, dtype, first_step),
        loss=loss,
        optimizer=optimizer,
        blocks=list(getattr(module, "blocks", ())),
    )


@dataclass
class Recorder:
    """A recorder of the gradients and parameters of each step, gathered if they are sharded."""

    module: nn.Module
    path: Path
    steps: int
    optimizer: torch.optim.Optimizer | None = None
    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    parameters: list[dict[str, torch.Tensor]] = field(default_factory=list)
    buffers: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def begin(self) -> None:
        self.optimizer.register_step_pre_hook(lambda *_: self.before_update())
        self.optimizer.register_step_post_hook(lambda *_: self.after_update())

    def before_update(self) -> None:
        if len(self.gradients) < self.steps:
            named = self.module.named_parameters()
            self.gradients.append({n: _whole(p.grad) for n, p in named if p.grad is not None})

    def after_update(self) -> None:
        if len(self.parameters) == self.steps:
            return
        self.parameters.append({n: _whole(p) for n, p in self.module.named_parameters()})
        self.buffers.append({n: _whole(b) for n, b in self.module.named_buffers()})
        if len(self.parameters) == self.steps:
            self._save()

    def _save(self) -> None:
        record = {
            "losses": self.losses,
            "gradients": self.gradients,
            "parameters": self.parameters,
            "buffers": self.buffers,
            "shards": {
                name: tuple(parameter.to_local().shape)
                for name, parameter in self.module.named_parameters()
                if isinstance(parameter, DTensor)
            },
            "devices": {parameter.device.type for parameter in self.module.parameters()},
            "compiled_graphs": counters["stats"]["unique_graphs"],
        }
        torch.save(record, self.path)


def _own_batches(context, dtype, first_step):
    """Yield this rank's share of each micro-step's global batch."""
    step = first_step
    while True:
        shares = (part.chunk(context.world_size) for part in global_batch(step, dtype))
        yield tuple(share[context.rank].to(context.device) for share in shares)
        step += 1


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in the host's memory, gathered if it is sharded."""
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.cpu().clone()


def _tamper(module: nn.Module) -> None:
    with torch.no_grad():
        next(module.parameters()).view(-1)[0] += 1e-12
