"""Summaries of launches: their figures and scaling, and a case's launches as a session."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ddp_perf.core.baseline import CONTROL, TYPICAL_STEP, Session
from ddp_perf.core.case import Case
from ddp_perf.core.environment import Environment
from ddp_perf.core.launch import LaunchResult, NetworkUse, RankResult, RankUtilisation, RdmaUse
from ddp_perf.core.measurement import LaunchSummary, Measurement
from ddp_perf.core.metric import CPU_TIME, EFFICIENCY, ENERGY, PEAK_MEMORY, STEP_TIME, TAIL
from ddp_perf.stats.level import launch_level
from ddp_perf.stats.step_decomposition import decompose

# Speedup, efficiency and scaling overhead of N ranks against one, by their definitions.
#
# Weak scaling keeps the batch of each rank (Gustafson 1988), strong scaling that of all ranks
# together (Amdahl 1967). One formula serves both, by the samples of a step: ideally N ranks need
# 1/N of the time that one rank needs for each sample.


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


# Summaries of launches: the figures of each launch, and a case's launches as a session.


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
            ideal=ideal_of(case, single.case) if single else 1.0,
        )
    return summaries


def ideal_of(case: Case, single: Case) -> float:
    """Return the ideal step of a case as a share of the step of its one-rank case."""
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


# The utilisation of a case: rates and shares, as medians over its launches.


Part = TypeVar("Part")
_NAMES = ("interface", "rdma_ports")  # not medians, but those of the first launch that has one


class CaseUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a machine by a case, of a rank or a GPU: the mean over all of them.

    None: unknown for some of them. Of a link the busier direction counts.
    """

    cpu_cores: float | None = None  # CPU seconds of a rank's process in a second
    system_cores: float | None = None  # the part of them in the kernel
    loader_cores: float | None = None  # CPU seconds of a rank's loader workers in a second
    cores_share: float | None = None  # of all cores that the ranks may use: ranks and loaders
    interface: str | None = None
    network_bytes_per_s: float | None = None  # of the whole host
    network_share: float | None = None  # of the link's speed
    rdma_ports: str | None = None
    rdma_bytes_per_s: float | None = None  # of the whole host, over all ports
    rdma_share: float | None = None  # of their speed
    rdma_waits_per_s: float | None = None  # ticks in which a port had data and sent none
    gpu_busy: float | None = None
    gpu_memory_busy: float | None = None
    gpu_memory_used: float | None = None  # bytes, of the GPU with the most
    sm_clock_mhz: float | None = None
    pcie_bytes_per_s: float | None = None  # of a GPU
    nvlink_bytes_per_s: float | None = None  # of a GPU

    def known(self) -> dict[str, float | str]:
        """Return the known figures by name."""
        fields = msgspec.structs.asdict(self)
        return {name: figure for name, figure in fields.items() if figure is not None}


def utilisation_figures(launches: Sequence[LaunchResult]) -> CaseUtilisation:
    """Return the medians over the launches that have a figure."""
    each = [_of_launch(launch) for launch in launches]
    figures: dict[str, Any] = {}
    for name in CaseUtilisation.__struct_fields__:
        known = [value for one in each if (value := getattr(one, name)) is not None]
        if known:
            figures[name] = known[0] if name in _NAMES else statistics.median(known)
    return CaseUtilisation(**figures)


def _of_launch(launch: LaunchResult) -> CaseUtilisation:
    used = [rank.utilisation for rank in launch.ranks if rank.utilisation is not None]
    if len(used) < len(launch.ranks):
        return CaseUtilisation()
    gpus = [one.gpu for one in used if one.gpu is not None]
    memory = [gpu.memory_used for gpu in gpus if gpu.memory_used is not None]
    return CaseUtilisation(
        cpu_cores=_mean(used, lambda one: one.cpu_s / one.period_s),
        system_cores=_mean(used, lambda one: one.system_s / one.period_s),
        loader_cores=_mean(used, _loader_cores),
        cores_share=_cores_share(launch.ranks, used),
        **(_of_network(used[0].network, used[0].period_s) if used[0].network else {}),
        **(_of_rdma(used[0].rdma, used[0].period_s) if used[0].rdma else {}),
        gpu_busy=_mean(gpus, lambda gpu: gpu.busy),
        gpu_memory_busy=_mean(gpus, lambda gpu: gpu.memory_busy),
        gpu_memory_used=max(memory, default=None),
        sm_clock_mhz=_mean(gpus, lambda gpu: gpu.sm_clock_mhz),
        pcie_bytes_per_s=_mean(used, lambda one: _link_rate(one, "pcie")),
        nvlink_bytes_per_s=_mean(used, lambda one: _link_rate(one, "nvlink")),
    )


def _loader_cores(used: RankUtilisation) -> float | None:
    return None if used.loaders_cpu_s is None else used.loaders_cpu_s / used.period_s


def _cores_share(ranks: Sequence[RankResult], each: Sequence[RankUtilisation]) -> float | None:
    """Return the share of their cores that all ranks and loaders use; None: unknown."""
    loaders = [_loader_cores(used) for used in each]
    cores = {core for rank in ranks for core in rank.placement.cores}
    if None in loaders or not cores:
        return None
    own = sum(used.cpu_s / used.period_s for used in each)
    return min((own + sum(filter(None, loaders))) / len(cores), 1.0)


def _of_network(network: NetworkUse, period_s: float) -> dict[str, Any]:
    rate, share = _rate_and_share(network, period_s)
    return {
        "interface": network.interface,
        "network_bytes_per_s": rate,
        "network_share": share,
    }


def _of_rdma(rdma: RdmaUse, period_s: float) -> dict[str, Any]:
    rate, share = _rate_and_share(rdma, period_s)
    return {
        "rdma_ports": rdma.ports,
        "rdma_bytes_per_s": rate,
        "rdma_share": share,
        "rdma_waits_per_s": None if rdma.waited is None else rdma.waited / period_s,
    }


def _rate_and_share(used: NetworkUse | RdmaUse, period_s: float) -> tuple[float, float | None]:
    rate = max(used.sent, used.received) / period_s
    return rate, None if used.speed is None else min(rate / used.speed, 1.0)


def _link_rate(used: RankUtilisation, link: str) -> float | None:
    """Return the bytes/s of a GPU's link in the busier direction, or None if one is unknown."""
    if used.gpu is None:
        return None
    sent = getattr(used.gpu.traffic, f"{link}_sent")
    received = getattr(used.gpu.traffic, f"{link}_received")
    return None if None in (sent, received) else max(sent, received) / used.period_s


def _mean(parts: Sequence[Part], figure: Callable[[Part], float | None]) -> float | None:
    """Return the mean over all parts, or None if one of them has no figure."""
    known = [value for part in parts if (value := figure(part)) is not None]
    return statistics.fmean(known) if known and len(known) == len(parts) else None
