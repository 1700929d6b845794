"""PyTorch's own hooks that send fewer bytes: fp16, bf16 and PowerSGD."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future

from ddp_perf.core.strategy import Bf16Hook, Fp16Hook, PowerSgdHook
from ddp_perf.strategies.hooks.hook import Hook


class HalfPrecision(Hook):
    """An all-reduce in fp16 or bf16."""

    def __init__(self, options: Fp16Hook | Bf16Hook, device: torch.device) -> None:
        self._compress = fp16_compress_hook if isinstance(options, Fp16Hook) else bf16_compress_hook

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._compress(dist.group.WORLD, bucket)  # type: ignore[arg-type]


class PowerSgd(Hook):
    """PowerSGD: a gradient matrix of n × m is sent as two of n × rank and m × rank."""

    def __init__(self, options: PowerSgdHook, device: torch.device) -> None:
        self._state = PowerSGDState(
            process_group=dist.group.WORLD,
            matrix_approximation_rank=options.rank,
            start_powerSGD_iter=options.start_step,
        )
        self._blocks = dist.get_backend() == "gloo"

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        reduced = powerSGD_hook(self._state, bucket)
        if self._blocks:  # in gloo's threads the collectives of two buckets would cross
            reduced.wait()
        return reduced
