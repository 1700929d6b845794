"""What a communication hook is to DDP, and how one is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

Reduce = Callable[[GradBucket], Future[torch.Tensor]]


class Hook(Protocol):
    """Reduces the gradients of a bucket to their mean over the ranks, or to something near."""

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        """Called by DDP in its backward, bucket by bucket, in the same order on all ranks."""
        ...

    def after_step(self, parameters: Iterable[nn.Parameter]) -> None:
        """After the optimizer's step."""

    def is_full_step(self, step: int) -> bool:
        """Whether a step, counted from 0, does all that the hook ever does in a step."""
        return True


def all_reduce(bucket: GradBucket) -> Future[torch.Tensor]:
    """What DDP does without a hook."""
    return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]  # the whole group


def beside_backward(
    device: torch.device, reduce: Callable[[torch.Tensor, int], torch.Tensor]
) -> Reduce:
    """A hook of ``reduce(buffer, bucket's index)``, which may call collectives and wait for them.

    On a GPU it runs on a stream of its own, so that the backward goes on meanwhile. Over gloo
    it blocks: callbacks would run on gloo's threads, where two buckets' collectives cross.
    """
    stream: torch.cuda.Stream | None = None
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    devices: list[int | str | torch.device] = [] if stream is None else [device]

    def start(bucket: GradBucket) -> Future[torch.Tensor]:
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            reduced: Future[torch.Tensor] = Future(devices=devices)
            reduced.set_result(reduce(bucket.buffer(), bucket.index()))
        return reduced

    return start


def from_step(start_step: int, reduce: Reduce) -> Reduce:
    """DDP's own all-reduce in the steps before ``start_step``."""
    step = 0

    def choose(bucket: GradBucket) -> Future[torch.Tensor]:
        nonlocal step
        chosen = reduce if step >= start_step else all_reduce
        step += bucket.is_last()
        return chosen(bucket)

    return choose
