"""Post-local SGD: gradients are averaged within groups, parameters periodically over all ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.futures import Future

from ddp_perf.core.strategy import PostLocalSgdHook
from ddp_perf.strategies.communication_hooks import Hook
from ddp_perf.strategies.hooks.groups import group_within


class PostLocalSgd(Hook):
    """PyTorch's hook of post-local SGD. Parameters differ by group between two averages.

    The averager is called directly. ``PostLocalSGDOptimizer`` would not call it on the ranks whose
    GradScaler skips the step, and the other ranks would wait for them.
    """

    def __init__(self, options: PostLocalSgdHook, device: torch.device) -> None:
        assert isinstance(options.group_size, int)  # `build_hook` has replaced "node"
        self._options = options
        self._state = PostLocalSGDState(  # type: ignore[no-untyped-call]
            process_group=dist.group.WORLD,
            subgroup=group_within(options.group_size),
            start_localSGD_iter=options.start_step,
        )
        self._averager = PeriodicModelAverager(options.period, warmup_steps=options.start_step)

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return post_localSGD_hook(self._state, bucket)

    def after_step(self, parameters: Iterable[nn.Parameter]) -> None:
        self._averager.average_parameters(parameters)

    def is_full_step(self, step: int) -> bool:
        """Return whether the step averages parameters over all ranks."""
        start_step, period = self._options.start_step, self._options.period
        return step >= start_step and (step - start_step) % period == 0
