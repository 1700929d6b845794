"""What training costs, from throughput and the price of a GPU-hour; in the price's own currency.

At one price for every GPU the cost efficiency is the scaling efficiency: what more GPUs lose of
each other's time is paid for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_SECONDS = 3600.0
_MILLION = 1e6


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one configuration."""

    per_million: float  # samples, in the workload's unit
    per_epoch: float | None = None  # None: how much an epoch is, is not stated
    efficiency: float | None = None  # cost of the same on one GPU ÷ this; None: not known


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """A whole training on so many GPUs."""

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
    """``throughput``: per second, over all ranks; ``single_throughput``: of one GPU."""
    per_sample = world_size * price_per_gpu_hour / _SECONDS / throughput
    alone = price_per_gpu_hour / _SECONDS / single_throughput if single_throughput else None
    return Cost(
        per_million=per_sample * _MILLION,
        per_epoch=per_sample * epoch_samples if epoch_samples is not None else None,
        efficiency=alone / per_sample if alone is not None else None,
    )


def training(
    *, world_size: int, throughput: float, samples: float, price_per_gpu_hour: float
) -> Configuration:
    """Of so many samples at this throughput."""
    return priced(world_size, samples / throughput / _SECONDS, price_per_gpu_hour)


def priced(world_size: int, hours: float, price_per_gpu_hour: float) -> Configuration:
    """Of so many hours."""
    return Configuration(
        world_size=world_size, hours=hours, cost=world_size * hours * price_per_gpu_hour
    )


def best_within(
    configurations: Iterable[Configuration],
    *,
    deadline_h: float | None = None,
    budget: float | None = None,
) -> Configuration | None:
    """The cheapest that meets the deadline; with no deadline the fastest that the budget pays,
    and with neither the cheapest of all. None where none will do; of equals the fewest GPUs.
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
