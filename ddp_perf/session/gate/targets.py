"""The judgement of absolute targets: a finding for each target of a case on this accelerator.

It needs no baseline. The figures are those that the tables show: what training costs on this
machine, with every stall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from ddp_perf.core.gpu import GpuMachine
from ddp_perf.core.measurement import Finding, LaunchSummary, Measurement
from ddp_perf.core.metric import PEAK_MEMORY
from ddp_perf.core.published import PublishedTable
from ddp_perf.core.target import EFFICIENCY_TARGET, EXPOSED, THROUGHPUT, Target
from ddp_perf.core.verdict import Outcome, Verdict
from ddp_perf.render.units import counted
from ddp_perf.session.gate.disturbance import with_disturbance
from ddp_perf.session.gate.missed_target import with_faults
from ddp_perf.session.gate.published import targets_of
from ddp_perf.session.gate.utilisation import utilisation_of
from ddp_perf.stats.link.model import bus_factor
from ddp_perf.stats.rule.target import TargetJudgement, judge_target
from ddp_perf.stats.scaling import efficiency_of


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
        missed = one.verdict.outcome is Outcome.MISSES_TARGET
        assert one.target is not None
        if (
            is_fast
            and missed
            and one.target.figure == EFFICIENCY_TARGET.name
            and one.target.published
        ):
            reason = (
                f"{one.verdict.reason}; all ranks together reach the throughput that they must, so"
                " it is one rank alone that is faster than published"
            )
            verdict = Verdict(outcome=Outcome.MEETS_TARGET, reason=reason)
            one = msgspec.structs.replace(one, verdict=verdict)
        yield one


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
        return said if verb is not None else f"{said} does not decide it: {_need(judged)}"
    figure = f"{target.spec.title} {figure}"
    if verb is not None:
        return f"{figure} {verb} {_aim(target, unit)}"
    return f"{figure} does not decide {_aim(target, unit)}: {_need(judged)}"


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
