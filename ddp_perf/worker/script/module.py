"""The module that a script trains, found by the parameters of its optimizer."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ddp_perf.core.strategy import Strategy


def trained_module(optimizer: Optimizer) -> nn.Module:
    """Return the module that a step of the optimizer updates, as its strategy wrapped it.

    It is the smallest module with all parameters of the optimizer, or what wraps it in DDP. If no
    module has all of them, it is a module made of these parameters.
    """
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    wanted = {id(one) for one in parameters}
    holders = [
        module for module in _modules() if wanted <= {id(one) for one in module.parameters()}
    ]
    if not holders:
        return nn.ParameterList(parameters)
    replicas = [module for module in holders if isinstance(module, DistributedDataParallel)]
    return min(replicas or holders, key=lambda module: sum(1 for _ in module.modules()))


def _modules() -> Iterator[nn.Module]:
    """Yield all modules. The type is asked, since a proxy may do work when it is asked itself."""
    for one in gc.get_objects():
        if issubclass(type(one), nn.Module):
            yield one


def strategy_of(module: nn.Module, world_size: int) -> Strategy:
    """Return the strategy by which a module is trained; "script": another one than torch's own."""
    if isinstance(module, DistributedDataParallel):
        return "ddp"
    if any(isinstance(one, FSDPModule | FullyShardedDataParallel) for one in module.modules()):
        return "fsdp"
    return "none" if world_size == 1 else "script"
