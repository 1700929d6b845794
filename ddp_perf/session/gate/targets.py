"""The judgement of absolute and published targets, and the utilisation of GPUs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from ddp_perf.core.gpu import GpuLoad, GpuMachine, Throttle
from ddp_perf.core.launch import RankResult
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import PEAK_MEMORY, metric_spec
from ddp_perf.core.note import NoteKind
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.target import EFFICIENCY_TARGET, EXPOSED, THROUGHPUT, Target
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import counted
from ddp_perf.session.gate.disturbance import with_disturbance
from ddp_perf.session.gate.published import targets_of
from ddp_perf.stats.hardware import common_peak, largest_peak, mfu
from ddp_perf.stats.link import bus_factor
from ddp_perf.stats.rule.target import TargetJudgement, judge_target
from ddp_perf.stats.summary import efficiency_of
from ddp_perf.system.checks import faults_under_load

# The line beside a missed target: what slowed the machine down, as it shows itself.


def with_faults(finding: Finding, measurement: Measurement, machine: GpuMachine | None) -> Finding:
    """Note of a missed target what slowed the GPUs of its ranks down, in one line.

    Memory does not depend on it. ``machine`` has the GPUs; None: the CPU tier.
    """
    is_missed = finding.verdict.outcome is Outcome.MISSES_TARGET
    if machine is None or not is_missed or metric_spec(finding.metric).disturbed_by is None:
        return finding
    loads = _loads(measurement)
    own = tuple(gpu for gpu in machine.gpus if gpu.uuid in loads)
    faults = faults_under_load(msgspec.structs.replace(machine, gpus=own), loads)
    shown = "; ".join(_together(faults))
    return finding.noted(NoteKind.FAULTS, shown) if shown else finding


def _loads(measurement: Measurement) -> dict[str, GpuLoad]:
    """Return the readings of each GPU under load, over all launches, by its UUID."""
    ranks: dict[str, list[RankResult]] = {}
    for launch in measurement.launches:
        for rank in launch.ranks:
            ranks.setdefault(rank.placement.device_id, []).append(rank)
    return {uuid: _load(each) for uuid, each in ranks.items()}


def _load(ranks: list[RankResult]) -> GpuLoad:
    """Return the typical clock, every reason for a reduced one, and the best link.

    A GPU that idles by the time of a reading lowers its link.
    """
    loads = [rank.load for rank in ranks if rank.load is not None]
    clocks = [clock for rank in ranks if (clock := rank.clock_mhz("sm_clock_mhz")) is not None]
    throttle: dict[Throttle, None] = {}
    for load in loads:
        throttle |= dict.fromkeys(load.throttle or ())
    return GpuLoad(
        sm_clock_mhz=round(statistics.median(clocks)) if clocks else None,
        throttle=tuple(throttle),
        pcie_generation=_most(load.pcie_generation for load in loads),
        pcie_width=_most(load.pcie_width for load in loads),
    )


def _most(readings: Iterable[int | None]) -> int | None:
    return max((one for one in readings if one is not None), default=None)


def _together(faults: Iterable[str]) -> Iterator[str]:
    """Yield each fault once, with all GPUs that have it: ``GPU 0, 1: …``."""
    gpus: dict[str, list[str]] = {}
    for fault in faults:
        where, colon, what = fault.partition(": ")
        is_of_one = colon and where.startswith("GPU ")
        gpus.setdefault(what if is_of_one else fault, []).extend(
            [where.removeprefix("GPU ")] if is_of_one else []
        )
    for what, indices in gpus.items():
        yield f"GPU {', '.join(indices)}: {what}" if indices else what


# The utilisation of the GPUs (MFU) by a case, and the check that it is possible.


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The utilisation of the rank with the most operations, over the typical step."""

    accelerator: str
    flops: int  # of a step
    by_format: dict[str, int]  # the same, by the format that they are computed in
    step_s: float

    @property
    def peak(self) -> float | None:
        """FLOP/s of these operations at their dense peaks; None: one of the peaks is unknown."""
        return common_peak(self.accelerator, self.by_format)

    @property
    def mfu(self) -> float | None:
        """It is None if the peak is unknown, or if the GPU used a faster format than counted."""
        share = None if self.peak is None else mfu(self.flops, self.step_s, self.peak)
        return None if share is None or share > 1 else share

    @property
    def is_impossible(self) -> bool:
        """True if no format of this GPU is so fast: then the time or the count is wrong."""
        largest = largest_peak(self.accelerator)
        return largest is not None and mfu(self.flops, self.step_s, largest) > 1

    def __str__(self) -> str:
        formats, rate = ", ".join(self.by_format), f"{self.flops / self.step_s / 1e12:g} TFLOP/s"
        if self.is_impossible:
            return f"{rate} are more than any format of {self.accelerator} allows"
        if not formats:
            return "none: the formats of its operations were not counted"
        if self.peak is None:
            return f"none: no dense peak of {self.accelerator} is known for all of: {formats}"
        peak = f"{self.peak / 1e12:.4g} TFLOP/s ({formats}, dense)"
        if self.mfu is None:
            return f"none: {rate} exceed {peak}, so the GPU used a faster format"
        return f"{self.mfu:.1%} of {peak}"


def utilisation_of(measurement: Measurement, accelerator: str) -> Utilisation | None:
    """Return the utilisation; None on the CPU tier, for a script, or if nothing was counted."""
    launches, case = measurement.launches, measurement.case
    counted = [rank for launch in launches for rank in launch.ranks if rank.flops]
    if case.tier != "gpu" or case.precision is None or not counted:
        return None
    most = max(counted, key=lambda rank: rank.flops or 0)
    return Utilisation(
        accelerator=accelerator,
        flops=most.flops or 0,
        by_format=most.flops_by_format,
        step_s=statistics.median(launch.typical_step_s for launch in launches),
    )


# The judgement of absolute targets: a finding for each target of a case on this accelerator.
#
# It needs no baseline. The figures are those that the tables show: what training costs on this
# machine, with every stall.


class _Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A measured case, with the launches that its figures are computed from."""

    measurement: Measurement
    summaries: Sequence[LaunchSummary]
    # Of its one-rank case, by round and node.
    singles: Mapping[tuple[int, str | None], LaunchSummary]
    accelerator: str


def judge_targets(
    measurements: Mapping[str, Measurement],
    summaries: Mapping[str, Sequence[LaunchSummary]],
    accelerator: str,
    looks: Mapping[str, tuple[int, ...]],
    published: Sequence[PublishedTable],
    machine: GpuMachine | None,
) -> Iterator[Finding]:
    """Judge the targets of all cases that were measured without a failed launch.

    ``published`` are the tables of this accelerator, and ``machine`` has its GPUs; None: the CPU
    tier.
    """
    for case_id, measurement in measurements.items():
        if not measurement.is_complete:
            continue
        measured = _Measured(
            measurement=measurement,
            summaries=summaries[case_id],
            singles={row.turn: row for row in summaries.get(measurement.case.single or "", ())},
            accelerator=accelerator,
        )
        targets = targets_of(measurement.case, accelerator, published).values()
        judged = [_judged(target, measured, looks.get(case_id, ())) for target in targets]
        for finding in _unless_one_rank_is_faster(judged):
            yield with_disturbance(with_faults(finding, measurement, machine), measurements)


def _unless_one_rank_is_faster(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings; a published efficiency is missed only if the ranks together are slower.

    A faster rank alone lowers the efficiency of all, and nothing of them became worse.
    """
    outcomes = {one.target.figure: one.verdict.outcome for one in findings if one.target}
    is_fast = outcomes.get(THROUGHPUT.name) is Outcome.MEETS_TARGET
    for one in findings:
        is_missed = one.verdict.outcome is Outcome.MISSES_TARGET
        published = one.target and one.target.published and one.target.figure
        is_excused = is_fast and is_missed and published == EFFICIENCY_TARGET.name
        yield one.noted(NoteKind.FASTER_RANK, outcome=Outcome.MEETS_TARGET) if is_excused else one


def _judged(target: Target, measured: _Measured, looks: Sequence[int]) -> Finding:
    case = measured.measurement.case
    utilisation = utilisation_of(measured.measurement, measured.accelerator)
    if utilisation is not None and utilisation.is_impossible:
        figures: list[float] | str = f"a measurement error: {utilisation}"
    else:
        figures = _FIGURES[target.figure](measured)
    if isinstance(figures, str) or not figures:
        why = figures if isinstance(figures, str) else _NO_LAUNCH
        verdict = Verdict(outcome=Outcome.INVALID, reason=_missing(target, why))
        return Finding(case_id=case.id, metric=target.metric, verdict=verdict, target=target)
    ranks = case.world_size if target.per_rank else 1
    judged = _judge([value / ranks for value in figures], target, looks)
    return Finding(
        case_id=case.id,
        metric=target.metric,
        verdict=Verdict(
            outcome=judged.outcome,
            reason=_reason(target, judged, measured.measurement, len(figures)),
            more_launches=judged.more_launches,
            likely_launches=judged.likely_launches,
        ),
        launches=len(figures),
        value=judged.value,
        target=target,
        value_interval=judged.interval,
    )


def _judge(figures: Sequence[float], target: Target, looks: Sequence[int]) -> TargetJudgement:
    """Judge the figures; a share that may be 0 is judged by the rest of the step."""
    if target.figure != EXPOSED.name:
        return judge_target(figures, target.bound, at_least=target.spec.at_least, looks=looks)
    rest = judge_target(
        [1 - share for share in figures], 1 - target.bound, at_least=True, looks=looks
    )
    return msgspec.structs.replace(
        rest,
        value=1 - rest.value,
        interval=rest.interval and (1 - rest.interval[1], 1 - rest.interval[0]),
    )


def _efficiency(measured: _Measured) -> list[float] | str:
    case = measured.measurement.case
    if case.single is None:
        return "there is no one-rank case to compare with; measure one rank too (world_sizes)"
    return [
        efficiency_of(
            world_size=case.world_size,
            throughput=row.throughput,
            single_throughput=measured.singles[row.turn].throughput,
        )
        for row in measured.summaries
        if row.turn in measured.singles
    ]


def _exposed(measured: _Measured) -> list[float] | str:
    steps = [row.decomposition for row in measured.summaries if row.decomposition is not None]
    if not all(step.sees_communication for step in steps):
        return "the probe does not see the communication of this strategy; remove the target"
    return [step.terms["exposed"] / step.step_s for step in steps]


def _mfu(measured: _Measured) -> list[float] | str:
    utilisation = utilisation_of(measured.measurement, measured.accelerator)
    if utilisation is None:
        return "no operation of its step was counted; remove the target"
    if utilisation.mfu is None:
        where = "name the accelerators of the target (accelerators: [...])"
        return f"{utilisation}; {where}, or remove it"
    mfu, step_s = utilisation.mfu, utilisation.step_s
    return [mfu * step_s / row.typical_step_s for row in measured.summaries]


def _bus_bandwidth(measured: _Measured) -> list[float] | str:
    case = measured.measurement.case
    assert case.collective is not None  # the suite's check refuses it otherwise
    factor = bus_factor(case.collective.kind, case.world_size)
    return [row.throughput * factor for row in measured.summaries]


# The figure of each launch, or why there is none.
_FIGURES: dict[str, Callable[[_Measured], list[float] | str]] = {
    "efficiency": _efficiency,
    "exposed_communication": _exposed,
    "throughput": lambda measured: [row.throughput for row in measured.summaries],
    "step_time": lambda measured: [row.typical_step_s for row in measured.summaries],
    "mfu": _mfu,
    "peak_memory": lambda measured: [row.values[PEAK_MEMORY.name] for row in measured.summaries],
    "busbw": _bus_bandwidth,
}
_NO_LAUNCH = "no launch has it; see why its one-rank case or its probe has no figure"


def _missing(target: Target, why: str) -> str:
    return f"no {target.spec.title} was measured: {why} ({_aim(target, '')})"


def _reason(
    target: Target, judged: TargetJudgement, measurement: Measurement, launches: int
) -> str:
    """Return the figure, its interval, and the target with the file that states it."""
    unit = f" {measurement.launches[0].unit.name}/s" if target.figure == THROUGHPUT.name else ""
    over = counted(launches, "launch")
    if judged.interval is not None:
        low, high = (_number(target, value) for value in judged.interval)
        over = f"interval {low} to {high}, {over}"
    verb = {Outcome.MEETS_TARGET: "meets", Outcome.MISSES_TARGET: "misses"}.get(judged.outcome)
    figure = f"{_number(target, judged.value)}{_suffix(target, unit)} ({over})"
    if target.published is not None:
        said = f"{_aim(target, unit)}; measured {figure}"
        return said if verb is not None else f"{said} does not decide it; {_need(judged)}"
    figure = f"{target.spec.title} {figure}"
    if verb is not None:
        return f"{figure} {verb} {_aim(target, unit)}"
    return f"{figure} does not decide {_aim(target, unit)}; {_need(judged)}"


def _need(judged: TargetJudgement) -> str:
    if judged.interval is None:
        return "one launch does not show how launches differ"
    if judged.more_launches is None:
        return "not even 100 more launches would decide it"
    return f"about {counted(judged.more_launches, 'more launch')} would decide it"


def _aim(target: Target, unit: str) -> str:
    relation = "at least" if target.spec.at_least else "at most"
    if target.published is None:
        bound = f"{_number(target, target.bound)}{_suffix(target, unit)}"
        return f"the target of {relation} {bound} in {target.file}"
    stated = target.published
    figure = f"{_number(target, stated.value)}{_suffix(target, unit)}"
    what = "" if target.figure == THROUGHPUT.name else f" {target.spec.title}"
    guessed = f", which does not state {', '.join(stated.inferred)}" if stated.inferred else ""
    return (
        f"{relation} {figure}{what} was published for this GPU ({stated.source}{guessed};"
        f" {stated.shortfall:.0%} {'less' if target.spec.at_least else 'more'} is allowed)"
    )


def _number(target: Target, value: float) -> str:
    """Write a value in the unit of the target, with four significant digits."""
    scaled = value / target.spec.units[target.unit]
    return f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:.4g}"


def _suffix(target: Target, unit: str) -> str:
    if target.per_rank:
        return f"{unit} per rank"
    return unit or (f" {target.unit}" if target.unit else "")
