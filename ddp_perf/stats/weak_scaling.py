"""Speedup, efficiency and scaling overhead of N ranks against one, by their definitions."""

from __future__ import annotations

import msgspec


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Weak scaling of N ranks against one, at equal batch per rank."""

    speedup: float  # throughput(N) ÷ throughput(1)
    efficiency: float  # speedup ÷ N
    overhead_s: float  # the scaling overhead: step time(N) − step time(1)
    overhead_fraction: float  # of step time(N)


def weak_scaling(
    *, world_size: int, throughput: float, single_throughput: float, step_s: float, single_s: float
) -> Scaling:
    """Compare N ranks with one rank, at the same batch per rank.

    The throughputs are in samples per second over all ranks. ``step_s`` and ``single_s`` are the
    typical steps of N ranks and of one rank. The scaling overhead is their difference, for
    whatever reason: it contains imbalance, and not the communication that computation hides.
    """
    speedup = throughput / single_throughput
    return Scaling(
        speedup=speedup,
        efficiency=speedup / world_size,
        overhead_s=step_s - single_s,
        overhead_fraction=(step_s - single_s) / step_s,
    )
