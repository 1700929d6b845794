"""Models on the meta device: their parameters are allocated where they are trained, then filled."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard

from ddp_perf.errors import ConfigError
from ddp_perf.strategies.strategy import Fill


def fill_model(
    model: nn.Module, fill: Fill, device: torch.device, *, kept_on: torch.device
) -> None:
    """Fill the parameters of a model on the meta device, after allocating them on ``kept_on``.

    Each is filled whole on ``device``, one at a time, and a rank keeps its shard of it. So the
    values are the same under any strategy and for any number of ranks.

    Raises ConfigError if the model has buffers, which nothing would fill, or a parameter with two
    names, which would become two.
    """
    if len([*model.named_parameters(remove_duplicate=False)]) > len([*model.named_parameters()]):
        raise ConfigError(
            "Workload.fill: a parameter of the model has two names, and each would get a tensor of"
            " its own; use it once, or build the model on the device"
        )
    if buffer := next((name for name, _ in model.named_buffers()), None):
        raise ConfigError(
            f"Workload.fill: it fills no buffers, and the model has {buffer!r}; compute it in"
            " forward, or build the model on the device"
        )
    model.to_empty(device=kept_on)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
            fill(name, whole)
            if isinstance(parameter, DTensor):
                parameter.to_local().copy_(_own_shard(parameter, whole))
            else:
                parameter.copy_(whole)


def _own_shard(parameter: DTensor, whole: torch.Tensor) -> torch.Tensor:
    """Return this rank's rows of the whole parameter; none if there are fewer rows than ranks."""
    mesh = parameter.device_mesh
    for dimension, placement in enumerate(parameter.placements):
        if isinstance(placement, Shard):
            chunks = whole.chunk(mesh.size(dimension), placement.dim)
            rank = mesh.get_local_rank(dimension)
            empty = whole.narrow(placement.dim, 0, 0)
            whole = chunks[rank] if rank < len(chunks) else empty
    return whole
