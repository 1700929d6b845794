"""The cost of training, from throughput and the price of a GPU-hour, in the price's own currency.

At one price for every GPU the cost efficiency equals the scaling efficiency: the time that more
GPUs lose is paid for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_SECONDS = 3600.0
_MILLION = 1e6


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cost of training one configuration."""

    per_million: float  # per million samples, in the workload's unit
    per_epoch: float | None = None  # None: the samples of an epoch are not stated
    efficiency: float | None = None  # the cost on one GPU ÷ this cost; None: unknown


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The duration and the cost of a whole training on a number of GPUs."""

    world_size: int
    hours: float
    cost: float


def cost_of(
    *,
    world_size: int,
    throughput: float,
    price_per_gpu_hour: float,
    epoch_samples: int | None = None,
    single_throughput: float | None = None,
) -> Cost:
    """Compute the cost of a configuration from its throughput.

    ``throughput`` is in samples per second over all ranks, and ``single_throughput`` is that of one
    GPU. ``epoch_samples`` are the samples of an epoch, if that is stated.
    """
    per_sample = world_size * price_per_gpu_hour / _SECONDS / throughput
    single = price_per_gpu_hour / _SECONDS / single_throughput if single_throughput else None
    return Cost(
        per_million=per_sample * _MILLION,
        per_epoch=per_sample * epoch_samples if epoch_samples is not None else None,
        efficiency=single / per_sample if single is not None else None,
    )


def training(
    *, world_size: int, throughput: float, samples: float, price_per_gpu_hour: float
) -> Configuration:
    """Return the duration and cost of ``samples`` at this throughput (samples per second)."""
    return priced(world_size, samples / throughput / _SECONDS, price_per_gpu_hour)


def priced(world_size: int, hours: float, price_per_gpu_hour: float) -> Configuration:
    """Return the configuration that takes this many hours, with its cost."""
    return Configuration(
        world_size=world_size, hours=hours, cost=world_size * hours * price_per_gpu_hour
    )


def best_within(
    configurations: Iterable[Configuration],
    *,
    deadline_h: float | None = None,
    budget: float | None = None,
) -> Configuration | None:
    """Return the configuration that fits the deadline (hours) and the budget best, or None.

    With a deadline, or with no limit at all, it is the cheapest one that fits. With only a budget
    it is the fastest one that fits. Among equals it is the one with the fewest GPUs.
    """
    fits = [
        c
        for c in configurations
        if (deadline_h is None or c.hours <= deadline_h) and (budget is None or c.cost <= budget)
    ]
    for_speed = budget is not None and deadline_h is None
    return min(
        fits,
        key=lambda c: (c.hours if for_speed else c.cost, c.world_size),
        default=None,
    )
