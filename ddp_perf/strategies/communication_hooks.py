"""The interface of a communication hook, and functions to write one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

Reduce = Callable[[GradBucket], Future[torch.Tensor]]


class Hook(Protocol):
    """A communication hook: it reduces a bucket's gradients to their mean, or approximately."""

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        """Reduce one bucket. DDP calls it in the backward, in the same order on all ranks."""
        ...

    def after_step(self, parameters: Iterable[nn.Parameter]) -> None:
        """Run after the optimizer's step."""

    def is_full_step(self, step: int) -> bool:
        """Return whether a step, counted from 0, does all that any step with this hook does."""
        return True


def all_reduce(bucket: GradBucket) -> Future[torch.Tensor]:
    """Reduce a bucket as DDP does without a hook."""
    return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]  # the whole group


def beside_backward(
    device: torch.device, reduce: Callable[[torch.Tensor, int], torch.Tensor]
) -> Reduce:
    """Make a hook of ``reduce(buffer, bucket's index)``, which may call and await collectives.

    On a GPU the hook runs on its own stream, beside the backward. Over gloo it blocks: callbacks
    would run on gloo's threads, where the collectives of two buckets cross.
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
    """Make a hook that is DDP's own all-reduce before ``start_step`` and ``reduce`` from it on."""
    step = 0

    def choose(bucket: GradBucket) -> Future[torch.Tensor]:
        nonlocal step
        chosen = reduce if step >= start_step else all_reduce
        step += bucket.is_last()
        return chosen(bucket)

    return choose
