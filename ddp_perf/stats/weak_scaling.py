"""Speedup, efficiency and exposed communication, by their definitions."""

from __future__ import annotations

import msgspec


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Weak scaling of N ranks against one, at equal batch per rank."""

    speedup: float  # throughput(N) ÷ throughput(1)
    efficiency: float  # speedup ÷ N
    exposed_s: float  # step time(N) − step time(1): communication that nothing hid
    exposed_fraction: float  # of step time(N)


def weak_scaling(
    *, world_size: int, throughput: float, single_throughput: float, step_s: float, single_s: float
) -> Scaling:
    """``T_comm = T_multi − T_single`` and its fraction are of the typical step."""
    speedup = throughput / single_throughput
    return Scaling(
        speedup=speedup,
        efficiency=speedup / world_size,
        exposed_s=step_s - single_s,
        exposed_fraction=(step_s - single_s) / step_s,
    )
