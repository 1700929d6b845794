"""PyTorch's own hooks that send fewer bytes: fp16, bf16, PowerSGD, and other hooks in a format."""

from __future__ import annotations

from typing import Literal

import torch
import torch.distributed as dist
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_hook,
    bf16_compress_wrapper,
    fp16_compress_hook,
    fp16_compress_wrapper,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future

from ddp_perf.core.strategy import Bf16Hook, Fp16Hook, PowerSgdHook
from ddp_perf.strategies.communication_hooks import Hook, Reduce


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
        self._start = in_format(options.wire, self._reduce)

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._start(bucket)

    def _reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        reduced = powerSGD_hook(self._state, bucket)
        if self._blocks:  # in gloo's threads the collectives of two buckets would cross
            reduced.wait()
        return reduced


def in_format(wire: Literal["fp16", "bf16"] | None, reduce: Reduce) -> Reduce:
    """Make a hook that casts a bucket to ``wire``, and its result back; ``reduce`` if it is None.

    All state that ``reduce`` keeps of a bucket is in that format, too.
    """
    if wire is None:
        return reduce
    wrap = fp16_compress_wrapper if wire == "fp16" else bf16_compress_wrapper
    wrapped = wrap(lambda state, bucket: reduce(bucket))
    return lambda bucket: wrapped(None, bucket)
