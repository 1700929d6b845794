"""Summaries of launches: the figures of each launch, and a case's launches as a session."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchResult
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import CPU_TIME, EFFICIENCY, ENERGY, PEAK_MEMORY, STEP_TIME, TAIL
from ddp_perf.core.session import CONTROL, TYPICAL_STEP, Session
from ddp_perf.stats.level import launch_level
from ddp_perf.stats.scaling import ideal_share
from ddp_perf.stats.step_decomposition import decompose


def summarise(
    launch: LaunchResult,
    *,
    samples_per_step: int,
    single: LaunchResult | None,
    ideal: float = 1.0,
) -> LaunchSummary:
    """Compute the figures of one launch.

    ``single`` is the one-rank launch of the same round, if there is one, and ``ideal`` the ideal
    step as a share of its step: 1 at equal batch per rank. The throughput is samples,
    in the workload's unit, ÷ wall time of the measured steps of the group. It contains every stall,
    which the level of the step leaves out.
    """
    steps, level = launch.step_s, step_level(launch)
    values = {
        STEP_TIME.name: level,
        TAIL.name: statistics.fmean(steps) / level,
        PEAK_MEMORY.name: float(max(rank.peak_memory for rank in launch.ranks)),
    }
    if single is not None:
        values[EFFICIENCY.name] = level / (step_level(single) * ideal)
    if (cpu_s := _cpu_level(launch)) is not None:
        values[CPU_TIME.name] = cpu_s
    if (energy_j := _energy_j(launch)) is not None:
        values[ENERGY.name] = energy_j / (samples_per_step * _steps_watched(launch))
    return LaunchSummary(
        round=launch.round,
        values=values,
        control_s=max(statistics.median(rank.control_s) for rank in launch.ranks),
        typical_step_s=launch.typical_step_s,
        mean_step_s=statistics.fmean(steps),
        p95_step_s=_p95(steps),
        throughput=samples_per_step * launch.unit.per_sample * len(steps) / sum(steps),
        decomposition=decompose(launch),
        overhead_s=_overhead_s(launch),
        node=launch.node,
        clocks_mhz=launch.clocks_mhz,
    )


def step_level(launch: LaunchResult) -> float:
    """Return the level of the step of the group, in seconds."""
    return launch_level(launch.step_s, launch.disturbed)


def _cpu_level(launch: LaunchResult) -> float | None:
    """Return the level of the CPU time of a step on its busiest rank; None: not on CPUs."""
    if not all(rank.cpu_s and rank.placement.device == "cpu" for rank in launch.ranks):
        return None
    return max(launch_level(rank.cpu_s) for rank in launch.ranks) or None


def summarise_all(
    launches: Sequence[LaunchResult],
    *,
    samples_per_step: int,
    singles: Sequence[LaunchResult],
    ideal: float = 1.0,
) -> list[LaunchSummary]:
    """Compute the figures of every launch, each with the one-rank launch of its round and node."""
    beside = {single.turn: single for single in singles}
    return [
        summarise(
            launch,
            samples_per_step=samples_per_step,
            single=beside.get(launch.turn),
            ideal=ideal,
        )
        for launch in launches
    ]


def _energy_j(launch: LaunchResult) -> float | None:
    """Return the energy of all GPUs over warm-ups and measured steps, or None.

    It is None if one GPU has no reading: the sum of the others would be only a part of it.
    """
    joules = [rank.energy_j for rank in launch.ranks if rank.energy_j is not None]
    return sum(joules) if len(joules) == len(launch.ranks) else None


def _steps_watched(launch: LaunchResult) -> int:
    """Return the number of steps that the energy covers: warm-ups count, too."""
    rank = launch.ranks[0]
    again = rank.extra_warmup.again if rank.extra_warmup is not None else 0
    return again + len(rank.warmup_s) + len(rank.step_s)


def _overhead_s(launch: LaunchResult) -> float:
    """Return the wall time outside the steps of the suite: start, extra warm-ups, probes."""
    stepped_s = max(sum(rank.warmup_s) + sum(rank.step_s) for rank in launch.ranks)
    return max(0.0, launch.wall_s - stepped_s)


def _p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, interpolated as numpy does it."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def summaries_of(measurements: Mapping[str, Measurement]) -> dict[str, list[LaunchSummary]]:
    """Summarise every launch, by case id; with scaling if the one-rank case was measured too."""
    summaries = {}
    for case_id, measurement in measurements.items():
        case = measurement.case
        single = measurements.get(case.single) if case.single else None
        summaries[case_id] = summarise_all(
            measurement.launches,
            samples_per_step=case.samples_per_step,
            singles=single.launches if single else (),
            ideal=_ideal(case, single.case) if single else 1.0,
        )
    return summaries


def _ideal(case: Case, single: Case) -> float:
    return ideal_share(
        world_size=case.world_size,
        samples=case.samples_per_step,
        single_samples=single.samples_per_step,
    )


def as_session(summaries: Sequence[LaunchSummary], environment: Environment, date: str) -> Session:
    """Return a case's launches of this session in the form of a stored session."""
    figures = [
        {
            **summary.values,
            **summary.clocks_mhz,
            CONTROL: summary.control_s,
            TYPICAL_STEP: summary.typical_step_s,
        }
        for summary in summaries
    ]
    terms = [s.decomposition.figures() if s.decomposition else {} for s in summaries]
    overheads = [s.overhead_s for s in summaries] or [0.0]  # no launch: the case failed
    return Session(
        date=date,
        environment=environment,
        launches=tuple(_rounded(row, 7) for row in figures),
        terms=tuple(_rounded(row, 4) for row in terms) if any(terms) else (),
        overhead_s=_to_digits(statistics.median(overheads), 4),
        nodes=tuple(summary.node for summary in summaries if summary.node is not None),
    )


def _rounded(row: Mapping[str, float], digits: int) -> dict[str, float]:
    """Round to significant digits: more are noise, and make the diff of a baseline unreadable."""
    return {name: _to_digits(value, digits) for name, value in row.items()}


def _to_digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
