"""The figures of a case that every report shows, and the gains of each technique."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Unit
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import ENERGY
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.hardware import Cost, cost_of
from ddp_perf.stats.link import bus_factor
from ddp_perf.stats.summary import Scaling, ideal_of, scaling_of
from ddp_perf.workloads.corpus import SAMPLES

# The figures of a case that every report shows: medians over its launches.


class CallFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a collective; bandwidths as nccl-tests' PERFORMANCE.md defines them."""

    call_s: float  # of the typical step
    algorithm_bytes_per_s: float  # algbw: payload ÷ mean time
    bus_bytes_per_s: float  # busbw: comparable over world sizes, and with the link's peak


class CaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the launches of a case."""

    step_s: float
    p95_step_s: float
    throughput: float  # of ``unit``, per second, over all ranks
    unit: str
    energy_j: float | None  # per sample, of all GPUs; None: no launch has a reading
    scaling: Scaling | None = None  # None: one rank, or no one-rank case was measured
    call: CallFigures | None = None  # of a collective
    cost: Cost | None = None  # None: the suite states no price


def case_figures(result: SuiteResult, case_id: str) -> CaseFigures | None:
    """Return the figures of a case, or None if it has no finished launch."""
    rows = result.summaries.get(case_id, ())
    if not rows:
        return None
    measurement = result.measurements[case_id]
    figures = figures_alone(measurement, rows)
    return msgspec.structs.replace(
        figures,
        scaling=_scaling(result, measurement, figures.throughput),
        cost=result.costs.get(case_id),
    )


def figures_alone(measurement: Measurement, rows: Sequence[LaunchSummary]) -> CaseFigures:
    """Return the figures of a case by itself: without one rank to compare it with, or a price."""
    case = measurement.case
    step_s, throughput = _typical(rows)
    return CaseFigures(
        step_s=step_s,
        p95_step_s=statistics.median(row.p95_step_s for row in rows),
        throughput=throughput,
        unit=measurement.launches[0].unit.name,
        energy_j=_energy_j(rows) if case.trains else None,
        call=_of_call(case, step_s, throughput),
    )


def _scaling(result: SuiteResult, measurement: Measurement, throughput: float) -> Scaling | None:
    """Return the scaling against the one-rank case, or None if that was not measured.

    It is of the mean step, as the throughput is: so the overhead is 1 − the efficiency.
    """
    case = measurement.case
    singles = result.summaries.get(case.single, ()) if case.single else ()
    if case.single is None or not singles:
        return None
    single, (_, single_throughput) = result.measurements[case.single], _typical(singles)
    return scaling_of(
        world_size=case.world_size,
        throughput=throughput,
        single_throughput=single_throughput,
        step_s=_mean_step_s(measurement, throughput),
        single_s=_mean_step_s(single, single_throughput),
        ideal_share=ideal_of(case, single.case),
    )


def _mean_step_s(measurement: Measurement, throughput: float) -> float:
    """Return the mean step of the throughput, which is in units of the workload."""
    units = measurement.case.samples_per_step * measurement.launches[0].unit.per_sample
    return units / throughput


def properties(figures: CaseFigures, case: Case) -> dict[str, float]:
    """Return the figures of a step for JUnit, by names that contain the unit."""
    if (call := figures.call) is not None:
        return {
            "call_us": call.call_s * 1e6,
            "algbw_gb_per_s": call.algorithm_bytes_per_s / 1e9,
            "busbw_gb_per_s": call.bus_bytes_per_s / 1e9,
        }
    return {
        "step_time_ms": figures.step_s * 1e3,
        f"throughput_{figures.unit}_per_s": figures.throughput,
        f"throughput_per_rank_{figures.unit}_per_s": figures.throughput / case.world_size,
        **(_cost_properties(figures.cost, figures.unit) if figures.cost is not None else {}),
    }


def _cost_properties(cost: Cost, unit: str) -> dict[str, float]:
    figures = {
        f"cost_per_million_{unit}": cost.per_million,
        "cost_per_epoch": cost.per_epoch,
        "cost_efficiency": cost.efficiency,
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def _of_call(case: Case, step_s: float, throughput: float) -> CallFigures | None:
    """Return the figures of one call, from the ``throughput`` in bytes per second."""
    if case.collective is None:
        return None
    return CallFigures(
        call_s=step_s / case.collective.calls,
        algorithm_bytes_per_s=throughput,
        bus_bytes_per_s=throughput * bus_factor(case.collective.kind, case.world_size),
    )


def _typical(rows: Sequence[LaunchSummary]) -> tuple[float, float]:
    """Return the medians over the launches of the typical step in seconds and the throughput."""
    step_s = statistics.median(row.typical_step_s for row in rows)
    return step_s, statistics.median(row.throughput for row in rows)


def _energy_j(rows: Sequence[LaunchSummary]) -> float | None:
    readings = [row.values[ENERGY.name] for row in rows if ENERGY.name in row.values]
    return statistics.median(readings) if readings else None


def costs_of(
    measurements: Mapping[str, Measurement], summaries: Mapping[str, Sequence[LaunchSummary]]
) -> dict[str, Cost]:
    """Return the cost of each case with a price by case id, from its median throughput."""
    typical = {
        case_id: statistics.median(row.throughput for row in rows)
        for case_id, rows in summaries.items()
        if rows
    }
    costs = {}
    for case_id, throughput in typical.items():
        case, launches = measurements[case_id].case, measurements[case_id].launches
        if case.cost.price_per_gpu_hour is None:
            continue
        costs[case_id] = cost_of(
            world_size=case.world_size,
            throughput=throughput,
            price_per_gpu_hour=case.cost.price_per_gpu_hour,
            epoch_samples=epoch_of(case, launches[0].unit),
            single_throughput=typical.get(case.single) if case.single else None,
        )
    return costs


def epoch_of(case: Case, unit: Unit) -> int | None:
    """Return the number of ``unit`` in an epoch, or None if it is not known.

    The suite states it, or else it follows from the published data set of the workload.
    """
    samples = case.cost.epoch_samples or SAMPLES.get(case.training.model.get("dataset"))  # type: ignore[call-overload]  # any scalar
    return None if samples is None else samples * unit.per_sample
