"""Speedup, efficiency and scaling overhead of N ranks against one, by their definitions.

Weak scaling keeps the batch of each rank (Gustafson 1988), strong scaling that of all ranks
together (Amdahl 1967). One formula serves both, by the samples of a step: ideally N ranks need
1/N of the time that one rank needs for each sample.
"""

from __future__ import annotations

import msgspec


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Weak or strong scaling of N ranks against one."""

    speedup: float  # throughput(N) ÷ throughput(1)
    efficiency: float  # speedup ÷ N
    overhead_s: float  # the scaling overhead: step time(N) − the ideal step
    overhead_fraction: float  # of step time(N)


def ideal_share(*, world_size: int, samples: int, single_samples: int) -> float:
    """Return the ideal step of N ranks as a share of the step of one rank.

    ``samples`` are those of a step of N ranks, ``single_samples`` those of a step of one rank. It
    is 1 if each rank keeps its batch (weak), and 1/N if all ranks share one batch (strong).
    """
    return samples / (world_size * single_samples)


def efficiency_of(*, world_size: int, throughput: float, single_throughput: float) -> float:
    """Return the throughput of a rank among N, as a share of that of one rank alone."""
    return throughput / (world_size * single_throughput)


def scaling_of(
    *,
    world_size: int,
    throughput: float,
    single_throughput: float,
    step_s: float,
    single_s: float,
    ideal_share: float,
) -> Scaling:
    """Compare N ranks with one rank.

    The throughputs are in samples per second over all ranks. ``step_s`` and ``single_s`` are the
    steps of N ranks and of one rank. The scaling overhead is the time above the ideal
    step, for whatever reason: it contains imbalance, and compute that does not shrink with the
    batch, and not the communication that computation hides.
    """
    speedup = throughput / single_throughput
    overhead_s = step_s - single_s * ideal_share
    return Scaling(
        speedup=speedup,
        efficiency=efficiency_of(
            world_size=world_size, throughput=throughput, single_throughput=single_throughput
        ),
        overhead_s=overhead_s,
        overhead_fraction=overhead_s / step_s,
    )
