"""Slow-downs on purpose: the effects of injections on a rank."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.case import Case, with_training
from ddp_perf.core.injection import KINDS, Injection, Kind
from ddp_perf.torch_compat.internals import occupy_gpu, unseen_by_modes
from ddp_perf.worker.counting.structure import SETTLED_AFTER
from ddp_perf.worker.injection.hog import burn_cores
from ddp_perf.worker.rank_context import RankContext
from ddp_perf.worker.steps.protocol import StepPlan
from ddp_perf.worker.steps.trainer import Loss, Trainer, is_captured
from ddp_perf.worker.timing.clock import step_clock
from ddp_perf.workloads.workload import Batch

# Matrix products that take a given time, for the injection compute:N%.


_CPU_SIZES = (64,)
# A host needs about as long to launch a small product as a GPU to compute it. In a long step,
# fewer and larger products let the host keep its lead, which ends at 1,024 launches.
_CUDA_SIZES = (2048, 1024, 512, 256)
_LEAST = 20  # products: with this many, rounding to a whole number is an error of 2.5 % at most
_ROUNDS = 10
_A_ROUND = 20  # products: a single one is too short for the clocks
_BUSY_CYCLES = 20_000_000  # 10 ms at 2 GHz: longer than the host needs to launch all rounds


class Products:
    """A number of square matrix products of one size."""

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self._factors = torch.full((2, size, size), 0.5, device=device).unbind()
        self._product = torch.empty(size, size, device=device)
        self.count = 1

    def run(self) -> None:
        """Run ``count`` products. They slow the step, and no counter takes them for its work."""
        with unseen_by_modes():
            for _ in range(self.count):
                torch.mm(*self._factors, out=self._product)

    def fill(self, seconds: float) -> None:
        """Set the count to what takes ``seconds``, and to 1 at least."""
        self.count = _A_ROUND
        if self._device.type == "cuda":
            # In a device-bound step the products follow each other without a gap. On an idle GPU
            # each would wait until the host launches it.
            occupy_gpu(_BUSY_CYCLES)
        one_s = lower_quartile(times_s(self._device, self.run, _ROUNDS)) / _A_ROUND
        self.count = max(1, round(seconds / one_s))


def products_for(seconds: float, device: torch.device) -> Products:
    """Return the largest products of which at least _LEAST fill the time; else the smallest."""
    for size in _CUDA_SIZES if device.type == "cuda" else _CPU_SIZES:
        products = Products(device, size)
        products.fill(seconds)
        if products.count >= _LEAST:
            break
    return products


def lower_quartile(times_s: list[float]) -> float:
    """Return the lower quartile: a typical time with little CPU contention in it."""
    return statistics.quantiles(times_s, n=4)[0]


def times_s(device: torch.device, act: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of each of ``count`` calls, by the device's clock."""
    clock = step_clock(device, count)
    clock.mark()
    for _ in range(count):
        act()
        clock.mark()
    return clock.intervals_s(lambda: None)


# The effects of injections on a rank.
#
# An effect changes what the timed loop calls, never the loop itself. Without an injection the rank
# runs exactly the code that it would run without this module.


_SCRIPT_STEPS = 10  # run to calibrate compute:N%
_STEPS = SETTLED_AFTER + _SCRIPT_STEPS


class Slowable(Protocol):
    """The steps of a script, as far as an injection changes them."""

    def act_before_batch(self, act: Callable[[], object]) -> None:
        """Call ``act`` at the begin of each later step."""
        ...

    def act_before_backward(self, act: Callable[[torch.Tensor], object]) -> None:
        """Call ``act(loss)`` once in each later step, before its first backward."""
        ...


class Effect:
    """The effect of one injection on this rank; the methods of this base class change nothing."""

    slowdown: float | None = None  # measured: seconds of the changed step ÷ the plain one, - 1

    def __init__(self, injection: Injection, context: RankContext) -> None:
        self.injection = injection
        self.rank = context.rank
        self.device = context.device

    def change_case(self, case: Case) -> Case:
        """Return the case to build instead of ``case``."""
        return case

    def apply_to(self, trainer: Trainer) -> None:
        """Change the built trainer, before its first timed step."""

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        """Change the steps of a script, before its first timed step."""
        yield from ()

    def run_beside(self) -> AbstractContextManager[None]:
        """Return a context manager around the timed steps, for what runs beside them."""
        return nullcontext()


class Injected:
    """All injections of a launch."""

    def __init__(self, injections: Sequence[Injection], context: RankContext) -> None:
        # In the order of KINDS: compute's share is measured before the others add to the step.
        ordered = sorted(injections, key=lambda injection: KINDS.index(injection.kind))
        self._effects = [_EFFECTS[i.kind](i, context) for i in ordered]

    def change_case(self, case: Case) -> Case:
        """Return the case to build instead of ``case``."""
        for effect in self._effects:
            case = effect.change_case(case)
        return case

    def apply_to(self, trainer: Trainer) -> None:
        """Change the built trainer, before its first timed step."""
        for effect in self._effects:
            effect.apply_to(trainer)

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        """Change the steps of a script, before its first timed step."""
        for effect in self._effects:
            yield from effect.apply_to_script(steps)

    @property
    def slowdown(self) -> float | None:
        """The share by which compute:N% made the step longer, or None if it is not injected."""
        return next((e.slowdown for e in self._effects if e.slowdown is not None), None)

    @contextlib.contextmanager
    def run_beside(self) -> Iterator[None]:
        """Run beside the timed steps, in the ``with`` block, what the injections need there."""
        with contextlib.ExitStack() as stack:
            for effect in self._effects:
                stack.enter_context(effect.run_beside())
            yield


class _Compute(Effect):
    """Matrix products before the forward that take the given share of the plain step."""

    _is_captured = False

    def change_case(self, case: Case) -> Case:
        self._is_captured = is_captured(case, self.device)
        return case

    def apply_to(self, trainer: Trainer) -> None:
        plain_s = self._step_s(trainer)
        products = products_for(self.injection.amount * plain_s, self.device)
        _before_forward(trainer, products.run)
        self.slowdown = self._step_s(trainer) / plain_s - 1

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        plain_s = yield from self._script_step_s()
        products = products_for(self.injection.amount * plain_s, self.device)
        steps.act_before_backward(lambda loss: products.run())
        self.slowdown = (yield from self._script_step_s()) / plain_s - 1

    def _script_step_s(self) -> StepPlan[float]:
        """Return the typical seconds of a step, of the next ones."""
        clock = step_clock(self.device, _SCRIPT_STEPS)
        clock.mark()
        for _ in range(_SCRIPT_STEPS):
            yield
            clock.mark()
        return lower_quartile(clock.intervals_s(lambda: None))

    def _step_s(self, trainer: Trainer) -> float:
        """Return the typical seconds of a step, captured if the timed steps will be captured."""
        if self._is_captured:
            trainer.capture()
        steps_s = times_s(self.device, trainer.step, _STEPS)[SETTLED_AFTER:]
        trainer.release()
        return lower_quartile(steps_s)


class _Straggler(Effect):
    """A straggler: one rank begins its backward late, and the others wait in theirs."""

    def apply_to(self, trainer: Trainer) -> None:
        if self.rank == self.injection.rank:
            _before_backward(trainer, lambda loss: _wait(self.injection.amount, self.device))

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        if self.rank == self.injection.rank:
            steps.act_before_backward(lambda loss: _wait(self.injection.amount, self.device))
        yield from ()


class _ExtraAllReduce(Effect):
    """One more all-reduce a step, between forward and backward, where no computation hides it."""

    def apply_to(self, trainer: Trainer) -> None:
        values = self._values()
        _before_backward(trainer, lambda loss: dist.all_reduce(values))

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        values = self._values()
        steps.act_before_backward(lambda loss: dist.all_reduce(values))
        yield from ()

    def _values(self) -> torch.Tensor:
        count = int(self.injection.amount) // torch.float32.itemsize
        return torch.zeros(count, dtype=torch.float32, device=self.device)


class _SmallBuckets(Effect):
    """Smaller DDP buckets. DDP uses a given size for the first bucket, too."""

    def change_case(self, case: Case) -> Case:
        assert case.training.ddp is not None  # small-buckets applies to DDP only
        size_mb = self.injection.amount / 2**20
        return with_training(
            case, ddp=msgspec.structs.replace(case.training.ddp, bucket_cap_mb=size_mb)
        )


class _NoOverlap(Effect):
    """No overlap: every bucket waits until the last one is full and the gradients are computed.

    A communication hook does this, since it changes nothing else: buckets, bytes, order and the
    scaling before the sum are DDP's own, so parameters stay equal to the last bit. (One huge
    bucket would change the structure and the order of summation. ``no_sync`` with a separate
    all-reduce would not use DDP's rebuilt buckets.)
    """

    def apply_to(self, trainer: Trainer) -> None:
        assert isinstance(trainer.module, DistributedDataParallel)
        buckets = _DelayedBuckets(self.device)
        # A lambda, since DDP compares annotations with types, and here annotations are text.
        trainer.module.register_comm_hook(None, lambda state, bucket: buckets.add(bucket))


class _SyncEachStep(Effect):
    """A synchronisation in every step: it reads the mean loss, as for a progress bar."""

    def apply_to(self, trainer: Trainer) -> None:
        _before_backward(trainer, _read_mean)

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        steps.act_before_backward(_read_mean)
        yield from ()


class _Data(Effect):
    """A slow data loader: the batch is late, and the forward cannot start."""

    def apply_to(self, trainer: Trainer) -> None:
        is_last = _last_micro_steps(trainer)
        trainer.wrap_batches(
            lambda batches: (self._late(batch, next(is_last)) for batch in batches)
        )

    def apply_to_script(self, steps: Slowable) -> StepPlan[None]:
        steps.act_before_batch(lambda: _wait(self.injection.amount, self.device))
        yield from ()

    def _late(self, batch: Batch, last: bool) -> Batch:
        if last:
            _wait(self.injection.amount, self.device)
        return batch


class _Memory(Effect):
    """More memory, allocated before the model is built, so that it is part of any peak."""

    def __init__(self, injection: Injection, context: RankContext) -> None:
        super().__init__(injection, context)
        # Ones are written, since a page becomes resident when it is first written.
        self._held = torch.ones(int(injection.amount), dtype=torch.uint8, device=self.device)


class _CpuHog(Effect):
    """CPU contention: busy processes, assigned to the ranks in turn."""

    def run_beside(self) -> AbstractContextManager[None]:
        return burn_cores(len(range(self.rank, int(self.injection.amount), dist.get_world_size())))


_EFFECTS: dict[Kind, type[Effect]] = {
    "compute": _Compute,
    "straggler": _Straggler,
    "extra-allreduce": _ExtraAllReduce,
    "small-buckets": _SmallBuckets,
    "no-overlap": _NoOverlap,
    "sync-each-step": _SyncEachStep,
    "data": _Data,
    "memory": _Memory,
    "cpu-hog": _CpuHog,
}


def _before_forward(trainer: Trainer, act: Callable[[], object]) -> None:
    """Call ``act`` once a step, before the forward of its last micro-step."""
    is_last = _last_micro_steps(trainer)

    def wrap(plain: Loss) -> Loss:
        def loss(module: nn.Module, batch: Batch) -> torch.Tensor:
            if next(is_last):
                act()
            return plain(module, batch)

        return loss

    trainer.wrap_loss(wrap)


def _before_backward(trainer: Trainer, act: Callable[[torch.Tensor], object]) -> None:
    """Call ``act(loss)`` once a step, before the backward of its last micro-step."""
    is_last = _last_micro_steps(trainer)

    def wrap(plain: Loss) -> Loss:
        def loss(module: nn.Module, batch: Batch) -> torch.Tensor:
            value = plain(module, batch)
            if next(is_last):
                act(value)
            return value

        return loss

    trainer.wrap_loss(wrap)


def _last_micro_steps(trainer: Trainer) -> Iterator[bool]:
    """Yield for each later forward whether it is the last one of its step."""
    return itertools.cycle([False] * (trainer.micro_steps - 1) + [True])


def _wait(seconds: float, device: torch.device) -> None:
    """Wait until the device is idle, then sleep for ``seconds``.

    A busy GPU would hide the sleep, since its host is ahead by whole steps.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    time.sleep(seconds)


def _read_mean(loss: torch.Tensor) -> None:
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    mean.item()  # waits for the device


class _DelayedBuckets:
    """The state of a communication hook that reduces all buckets when the last one is full."""

    def __init__(self, device: torch.device) -> None:
        self._devices: list[int | str | torch.device] = [device] if device.type == "cuda" else []
        self._waiting: list[tuple[torch.Tensor, Future[torch.Tensor]]] = []

    def add(self, bucket: GradBucket) -> Future[torch.Tensor]:
        reduced: Future[torch.Tensor] = Future(devices=self._devices)
        self._waiting.append((bucket.buffer(), reduced))
        if bucket.is_last():
            self._reduce()
        return reduced

    def _reduce(self) -> None:
        # DDP multiplies by this factor, too. A quotient would round differently.
        scale = 1 / dist.get_world_size()
        works = [dist.all_reduce(buffer.mul_(scale), async_op=True) for buffer, _ in self._waiting]
        for work, (buffer, reduced) in zip(works, self._waiting, strict=True):
            work.wait()
            reduced.set_result(buffer)
        self._waiting.clear()
