"""What the cases of a suite cost, where it states a price."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.stats.cost import Cost, cost_of


def costs_of(
    measurements: Mapping[str, Measurement], summaries: Mapping[str, Sequence[LaunchSummary]]
) -> dict[str, Cost]:
    """By case id, from the median throughput of its launches."""
    typical = {
        case_id: statistics.median(row.throughput for row in rows)
        for case_id, rows in summaries.items()
        if rows
    }
    costs = {}
    for case_id, throughput in typical.items():
        case, launches = measurements[case_id].case, measurements[case_id].launches
        if case.price_per_gpu_hour is None:
            continue
        samples = case.epoch_samples
        costs[case_id] = cost_of(
            world_size=case.world_size,
            throughput=throughput,
            price_per_gpu_hour=case.price_per_gpu_hour,
            epoch_samples=samples * launches[0].unit.per_sample if samples else None,
            single_throughput=typical.get(case.single) if case.single else None,
        )
    return costs
