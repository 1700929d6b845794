"""The module that a script trains, found by the parameters of its optimizers."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_perf.core.strategy import Strategy


def trained_module(optimizers: Sequence[Optimizer]) -> nn.Module:
    """Return the module that a step of the optimizers updates, as its strategy wrapped it.

    It is the smallest module with all parameters of the optimizers, or what wraps it in DDP. If no
    module has all of them, it is that of the first optimizer; if none has those either, a module
    made of these parameters. Without an optimizer it is the largest module, or what wraps one in
    DDP.
    """
    modules = list(_modules())
    for group in (optimizers, optimizers[:1]):
        wanted = {id(one) for one in _parameters(group)}
        holders = [
            module for module in modules if wanted <= {id(one) for one in module.parameters()}
        ]
        if holders:
            replicas = [one for one in holders if isinstance(one, DistributedDataParallel)]
            choose = min if wanted else max
            return choose(replicas or holders, key=lambda module: sum(1 for _ in module.modules()))
    return nn.ParameterList(_parameters(optimizers[:1]))


def gpu_of(optimizer: Optimizer | None) -> torch.device:
    """Return the GPU of an optimizer's parameters; if none is on a GPU, the current one."""
    parameters = [] if optimizer is None else _parameters([optimizer])
    used = (one.device for one in parameters if one.is_cuda)
    return next(used, None) or torch.device("cuda", torch.cuda.current_device())


def replicas() -> list[DistributedDataParallel]:
    """Return all modules of this process that DDP wraps."""
    return [module for module in _modules() if isinstance(module, DistributedDataParallel)]


def _parameters(optimizers: Sequence[Optimizer]) -> list[nn.Parameter]:
    return [
        one
        for optimizer in optimizers
        for group in optimizer.param_groups
        for one in group["params"]
    ]


def _modules() -> Iterator[nn.Module]:
    """Yield all modules whose construction has begun.

    The type is asked, since a proxy may do work when it is asked itself.
    """
    for one in gc.get_objects():
        if issubclass(type(one), nn.Module) and "_modules" in vars(one):
            yield one


def strategy_of(module: nn.Module, world_size: int) -> Strategy:
    """Return the strategy by which a module is trained; "script": another one than torch's own."""
    if isinstance(module, DistributedDataParallel):
        return "ddp"
    if any(isinstance(one, FSDPModule | FullyShardedDataParallel) for one in module.modules()):
        return "fsdp"
    return "none" if world_size == 1 else "script"
