"""Communication hooks of DDP: PyTorch's own, top-K, hierarchical, and post-local SGD."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket, ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    bf16_compress_wrapper,
    fp16_compress_hook,
    fp16_compress_wrapper,
)
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.futures import Future
from torch.nn import functional

from ddp_perf.core.case import Case
from ddp_perf.core.strategy import (
    Bf16Hook,
    Fp16Hook,
    HierarchicalHook,
    PostLocalSgdHook,
    PowerSgdHook,
    TopKHook,
)
from ddp_perf.torch_compat import all_gather, reduce_scatter

# The interface of a communication hook, and functions to write one.


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


def overlap_backward(
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


# PyTorch's own hooks that send fewer bytes: fp16, bf16, PowerSGD, and other hooks in a format.


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
        self._blocks = device.type == "cpu"
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


# Top-K: each rank sends the largest values of a bucket, and keeps the others for later.


class TopK(Hook):
    """The mean of the values that the ranks sent (Lin et al. 2017), with error feedback.

    Error feedback (Stich et al. 2018, arXiv:1809.07599) adds the values that were not sent to the
    next step's gradient. Of a bucket of n values, each rank sends k = ⌈ratio·n⌉ values and k
    indices of 4 bytes.
    """

    def __init__(self, options: TopKHook, device: torch.device) -> None:
        self._largest = LargestValues(options.ratio, dist.group.WORLD)
        self._start = from_step(options.start_step, overlap_backward(device, self._mean))

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._start(bucket)

    def _mean(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        return self._largest.sum_(buffer, index).div_(dist.get_world_size())


class LargestValues:
    """The sum over a group of the largest values of each rank; the others wait for later steps."""

    def __init__(self, ratio: float, group: ProcessGroup | None) -> None:
        self._ratio = ratio
        self._group = group
        self._unsent: dict[int, torch.Tensor] = {}  # by the bucket's index

    def sum_(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        """Replace ``buffer``, of the bucket ``index``, by the sum. Collective."""
        unsent = self._unsent.setdefault(index, torch.zeros_like(buffer))
        unsent += buffer
        count = math.ceil(self._ratio * buffer.numel())
        indices = unsent.abs().topk(count, sorted=False).indices
        values = unsent[indices]
        unsent[indices] = 0
        buffer.zero_()
        # Every rank adds in the order of ranks, so that all get the same bits.
        for sent, places in zip(self._gather(values), self._gather(indices.int()), strict=True):
            buffer[places] += sent
        return buffer

    def _gather(self, own: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gather the values of all ranks of the group, in the order of ranks. Collective."""
        size = dist.get_world_size(self._group)
        gathered = own.new_empty(size * own.numel())
        all_gather(gathered, own, self._group)
        return gathered.chunk(size)


# Process groups of neighbouring ranks, such as the GPUs of one node.


def group_within(size: int) -> ProcessGroup:
    """Create the groups 0 to ``size`` − 1, ``size`` to 2·``size`` − 1, …; return this rank's.

    Collective.
    """
    ranks = range(dist.get_world_size())
    return _own([list(ranks[first : first + size]) for first in ranks[::size]])


def group_across(size: int) -> ProcessGroup:
    """Create the groups of ranks with equal places (0, ``size``, …); return this rank's.

    Collective.
    """
    ranks = range(dist.get_world_size())
    return _own([list(ranks[place::size]) for place in range(size)])


def _own(ranks: list[list[int]]) -> ProcessGroup:
    """Create all groups, in the same order on every rank, and return this rank's. Collective."""
    own: ProcessGroup
    own, _ = dist.new_subgroups_by_enumeration(ranks)  # type: ignore[no-untyped-call]
    return own


# Hierarchical all-reduce: 1/size of the bytes crosses the slow link between groups.


class Hierarchical(Hook):
    """A reduce-scatter within groups, an all-reduce between them, and an all-gather within them.

    The result is exact except for the order of the sum. A bucket is padded to n values, a multiple
    of the group's size: n values are reduced within, n/size between groups, n gathered within.

    With a ratio, each group sends only the largest of its n/size sums, as Top-K does.
    """

    def __init__(self, options: HierarchicalHook, device: torch.device) -> None:
        assert isinstance(options.group_size, int)  # `build_hook` has replaced "node"
        self._size = options.group_size
        self._within = group_within(self._size)
        self._across = group_across(self._size)
        self._largest: LargestValues | None = None
        if options.ratio is not None:
            self._largest = LargestValues(options.ratio, self._across)
        start = from_step(options.start_step, overlap_backward(device, self._mean))
        self._start = in_format(options.wire, start)

    def reduce(self, bucket: GradBucket) -> Future[torch.Tensor]:
        return self._start(bucket)

    def _mean(self, buffer: torch.Tensor, index: int) -> torch.Tensor:
        padded = functional.pad(buffer, (0, -buffer.numel() % self._size))
        shard = padded.new_empty(padded.numel() // self._size)
        reduce_scatter(shard, padded, self._within)
        if self._largest is None:
            dist.all_reduce(shard, group=self._across)
        else:
            self._largest.sum_(shard, index)
        shard /= dist.get_world_size()
        all_gather(padded, shard, self._within)
        return buffer.copy_(padded[: buffer.numel()])


# Post-local SGD: gradients are averaged within groups, parameters periodically over all ranks.


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


# The communication hooks by the kind of their options.


_HOOKS: dict[str, Callable[[Any, torch.device], Hook]] = {
    "fp16": HalfPrecision,
    "bf16": HalfPrecision,
    "powersgd": PowerSgd,
    "topk": TopK,
    "hierarchical": Hierarchical,
    "post_local_sgd": PostLocalSgd,
}


def build_hook(case: Case, device: torch.device) -> Hook | None:
    """Build the hook of the case, if it has one. Collective: all ranks of the group build it."""
    options = case.training.comm_hook
    if options is None:
        return None
    if case.group_size is not None:
        options = msgspec.structs.replace(options, group_size=case.group_size)  # "node" as a number
    return _HOOKS[options.kind](options, device)
