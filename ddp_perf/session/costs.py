"""What the cases of a suite cost, where it states a price."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ddp_perf.core.case import Case
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.result import Unit
from ddp_perf.stats.cost import Cost, cost_of
from ddp_perf.workloads.corpus import SAMPLES


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
        costs[case_id] = cost_of(
            world_size=case.world_size,
            throughput=throughput,
            price_per_gpu_hour=case.price_per_gpu_hour,
            epoch_samples=epoch_of(case, launches[0].unit),
            single_throughput=typical.get(case.single) if case.single else None,
        )
    return costs


def epoch_of(case: Case, unit: Unit) -> int | None:
    """How many of ``unit`` an epoch has: by what the suite states, else by the published data set
    that the workload names. None: neither says.
    """
    samples = case.epoch_samples or SAMPLES.get(case.model.get("dataset"))  # type: ignore[call-overload]  # any scalar
    return None if samples is None else samples * unit.per_sample
