"""The texts of one case: its verdicts, its summary block, its ranks, and why it is slower."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddp_perf.core.case import Case
from ddp_perf.core.launch import GpuUse, LaunchFailure, Numerics, Placement, RankResult, ScriptFacts
from ddp_perf.core.measurement import Finding, Known, LaunchSummary, Look, Measurement
from ddp_perf.core.metric import STEP_TIME, is_target, metric_title
from ddp_perf.core.verdict import Cause, Delta, Explanation, Settled
from ddp_perf.render.units import (
    change_text,
    counted,
    culprit_text,
    describe_duration,
    milliseconds,
    percent_change,
    short_percent,
)
from ddp_perf.session.figures import CallFigures, CaseFigures, figures_alone
from ddp_perf.session.gate.targets import Utilisation, utilisation_of
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.summary import CaseUtilisation, utilisation_figures

# The steps of a script: where they end, and what its step times do not show.


_MOST_FILES = 5  # that a note names


def script_facts(measurement: Measurement) -> ScriptFacts | None:
    """Return the facts over all ranks and launches, or None if no script was measured."""
    each = [
        rank.script
        for launch in measurement.launches
        for rank in launch.ranks
        if rank.script is not None
    ]
    if not each:
        return None
    return ScriptFacts(
        steps_at=", ".join(dict.fromkeys(facts.steps_at for facts in each)),
        micro_steps=(
            min(facts.micro_steps[0] for facts in each),
            max(facts.micro_steps[1] for facts in each),
        ),
        optimizers=max(facts.optimizers for facts in each),
        skipped=max(facts.skipped for facts in each),
        own_files=_all(facts.own_files for facts in each),
        changed_files=_all(facts.changed_files for facts in each),
    )


def _all(files: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({*itertools.chain.from_iterable(files)}))


def step_line(measurement: Measurement) -> str | None:
    """Return the line of a script at which its steps end, and what a step consists of."""
    facts = script_facts(measurement)
    if facts is None:
        return None
    return f"{facts.steps_at} ({_passes(facts)}, {counted(facts.optimizers, 'optimizer')})"


def script_notes(result: SuiteResult, names: Mapping[str, str]) -> list[str]:
    """Return a note for each property of the steps that a reader of their times must know."""
    found: dict[str, list[str]] = {}
    for case_id, measurement in result.measurements.items():
        facts = script_facts(measurement)
        for note in _notes(facts) if facts is not None else ():
            found.setdefault(note, []).append(names[case_id])
    return [f"{', '.join(cases)}: {note}" for note, cases in found.items()]


def _notes(facts: ScriptFacts) -> Iterable[str]:
    least, most = facts.micro_steps
    if least != most:
        yield f"a step has {_passes(facts)} ({facts.steps_at}): its steps are not alike"
    if facts.optimizers > 1:
        yield (
            f"{facts.optimizers} optimizers step; a step is one of the first, or of `steps_by:`"
            f" ({facts.steps_at})"
        )
    if facts.skipped:
        yield (
            f"a GradScaler skipped up to {counted(facts.skipped, 'step')} of a launch: they have no"
            " step of the optimizer"
        )
    if facts.changed_files:
        yield (
            f"the script CHANGED {counted(len(facts.changed_files), 'file')} OUTSIDE of its private"
            f" directory, as each launch may do again: {_some(facts.changed_files)}; switch that"
            " off by its args, or let them be in another place"
        )
    if facts.own_files:
        yield (
            f"the script wrote {counted(len(facts.own_files), 'file')}, removed after the launch:"
            f" {_some(facts.own_files)}"
        )


def _some(files: Sequence[str]) -> str:
    more = len(files) - _MOST_FILES
    return ", ".join(files[:_MOST_FILES]) + (f" and {more} more" if more > 0 else "")


def _passes(facts: ScriptFacts) -> str:
    least, most = facts.micro_steps
    if least == most:
        return "1 backward pass" if most == 1 else f"{most} backward passes"
    return f"{least} to {most} backward passes"


# The utilisation of a case as text: lines of its summary block, and a line of each rank.


def utilisation_lines(used: CaseUtilisation) -> list[str]:
    """Return the lines of a case's summary block, only of what was read."""
    return [
        f"{name:<17}: {text}"
        for name, text in (
            ("CPU", _cpu(used)),
            ("Network", _network(used)),
            ("RDMA", _rdma(used)),
            ("GPU", _gpu(used)),
            ("GPU links", _links(used)),
        )
        if text
    ]


def rank_utilisation_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return a line for each rank of the last launch, or none without a reading."""
    measurement = result.measurements[case_id]
    if not measurement.launches:
        return []
    ranks = measurement.launches[-1].ranks
    return [line for rank in ranks if (line := _of_rank(rank, measurement.case)) is not None]


def _cpu(used: CaseUtilisation) -> str:
    if used.cpu_cores is None:
        return ""
    text = f"{used.cpu_cores:.2f} cores a rank, {used.system_cores:.2f} of them in the kernel"
    return f"{text}; loaders {used.loader_cores:.2f} cores a rank" if used.loader_cores else text


def _network(used: CaseUtilisation) -> str:
    if used.network_bytes_per_s is None:
        return ""
    share = "" if used.network_share is None else f", {used.network_share:.0%} of its link"
    return f"{used.network_bytes_per_s / 1e6:,.0f} MB/s over {used.interface}{share} (whole host)"


def _rdma(used: CaseUtilisation) -> str:
    if used.rdma_bytes_per_s is None:
        return ""
    share = "" if used.rdma_share is None else f", {used.rdma_share:.0%} of their rate"
    return f"{used.rdma_bytes_per_s / 1e9:.3g} GB/s over {used.rdma_ports}{share} (whole host)"


def _gpu(used: CaseUtilisation) -> str:
    parts = [
        None if used.gpu_busy is None else f"busy {used.gpu_busy:.0%}",
        None if used.sm_clock_mhz is None else f"SM clock {used.sm_clock_mhz:,.0f} MHz",
        _memory(used.gpu_memory_used),
    ]
    return ", ".join(filter(None, parts))


def _links(used: CaseUtilisation) -> str:
    rates = {"PCIe": used.pcie_bytes_per_s, "NVLink": used.nvlink_bytes_per_s}
    known = [f"{name} {rate / 1e9:.3g} GB/s" for name, rate in rates.items() if rate is not None]
    return f"{', '.join(known)} (of a GPU, the busier direction)" if known else ""


def _memory(used: float | None) -> str | None:
    return None if used is None else f"{used / 1e9:.3g} GB in use"


def _of_rank(rank: RankResult, case: Case) -> str | None:
    """Return what a rank used and how many samples it trained on (the columns of document 002)."""
    used = rank.utilisation
    if used is None:
        return None
    parts = [f"{used.cpu_s / used.period_s:.2f} cores"]
    if used.loaders_cpu_s:
        parts.append(f"loaders {used.loaders_cpu_s / used.period_s:.2f} cores")
    if used.gpu is not None:
        parts += _of_gpu(used.gpu)
    if case.trains:
        samples = case.samples_per_step // case.world_size * len(rank.step_s)
        parts.append(f"{samples:,} samples in the timed steps")
    return f"rank {rank.placement.rank} used {', '.join(parts)}"


def _of_gpu(used: GpuUse) -> list[str]:
    busy = None if used.busy is None else f"GPU busy {used.busy:.0%}"
    return [part for part in (busy, _memory(used.memory_used)) if part is not None]


# The texts of one case: its verdicts, its summary block, and the placement of its ranks.


WHOLE_TRACEBACK = "(These are the frames of your code; --ddp-json=FILE writes the whole traceback.)"


def describe_finding(finding: Finding) -> str:
    """Return the verdict with its figures, its reason, and all that is known about it."""
    verdict = finding.verdict
    lines = [f"{verdict.outcome.value}: {metric_title(finding.metric)} of {finding.case_id}"]
    if verdict.ratio is not None and finding.baseline_date is not None:
        lines[0] += f": {verdict.ratio:.3f} × the baseline of {finding.baseline_date[:10]}"
        if verdict.minimum_detectable is not None:
            lines[0] += f" (minimum detectable: {verdict.minimum_detectable:.1%})"
    return "\n".join([*lines, *reason_lines(finding)])


def reason_lines(finding: Finding) -> list[str]:
    """Return why the verdict is so, and all else that is known about it."""
    lines = [finding.reason, *map(_describe_look, finding.earlier)]
    if finding.changed:
        lines.append(f"changed since the baseline: {', '.join(finding.changed)}")
    return [*lines, *beside(finding)]


def beside(finding: Finding) -> list[str]:
    """Return what else is known: a published figure, an acknowledgement, a drift."""
    lines = []
    if finding.published is not None:
        lines.append(finding.published)
    if finding.known is not None:
        lines.append(describe_known(finding.known))
    if finding.drift is not None:
        lines.append(
            f"drift since the first baseline, over all accepted changes: {finding.drift:.3f} ×"
        )
    return lines


def describe_known(known: Known) -> str:
    """Return the acknowledgement of a regression, and its state in this session."""
    entry = known.acknowledgement
    text = f'acknowledged on {entry.date[:10]}: "{entry.reason}"'
    if known.state == "expected":
        return f"{text}; expected until {entry.until}"
    if known.state == "grown":
        size = "" if entry.ratio is None else f", as {percent_change(entry.ratio)}"
        grown = "it is another one" if entry.ratio is None else "it has grown beyond that"
        return f"{text}{size}; {grown}: fix it, or acknowledge it again with ddp-perf baseline ack"
    if known.state == "expired":
        return f"{text}; the acknowledgement ended on {entry.until}"
    remedy = "ddp-perf baseline ack with a past date ends the acknowledgement"
    over = "the target is met" if is_target(entry.metric) else "the regression is over"
    return f"{text} until {entry.until}; {over}: {remedy}"


def _describe_look(look: Look) -> str:
    verdict = look.verdict
    ratio = "" if verdict.ratio is None else f", {verdict.ratio:.3f} ×"
    return f"interim look after {counted(look.launches, 'launch')}: {verdict.outcome.value}{ratio}"


def describe_launch_failure(failure: LaunchFailure, *, remark: str = WHOLE_TRACEBACK) -> str:
    """Return the failed rank, the reason, its traceback or stacks, and its last output.

    Of a traceback with frames of the user's code only these are shown, with ``remark``.
    """
    parts = [str(failure)]
    if failure.user_frames:
        parts += [failure.user_frames.rstrip(), remark]
    elif failure.traceback:
        parts.append(failure.traceback.rstrip())
    parts += [f"{who}:\n{stack.rstrip()}" for who, stack in failure.stacks.items()]
    parts += [f"last collectives of {who}:\n{lines}" for who, lines in failure.collectives.items()]
    if failure.output:
        parts.append(f"last output:\n{failure.output}")
    return "\n".join(parts)


def case_summary(
    measurement: Measurement, summaries: Sequence[LaunchSummary], accelerator: str
) -> str:
    """Return the placement of the ranks of a case that finished a launch, and its summary block.

    ``accelerator`` is the key of the machine's GPUs, whose peak the utilisation is a share of.
    """
    utilisation = utilisation_of(measurement, accelerator)
    placements = placement_lines([rank.placement for rank in measurement.launches[0].ranks])
    figures = figures_alone(measurement, summaries)
    block = summary_block(measurement, summaries, figures, utilisation)
    return "\n".join([*placements, "", block])


def placement_lines(placements: Sequence[Placement]) -> list[str]:
    """Return a line for each rank, so that two ranks on one device are easy to see."""
    nodes = [place.node for place in placements]
    return [
        f"[Rank {place.rank}] CUDA_VISIBLE_DEVICES={_or_unset(place.cuda_visible_devices)},"
        f" LOCAL_RANK={nodes[:at].count(place.node)}, current_device={place.device},"
        f" name={place.device_name}, {place.device_id}"
        f"{f', {place.node_name}' if any(nodes) else ''}"
        for at, place in enumerate(placements)
    ]


def _or_unset(value: str | None) -> str:
    return "unset" if value is None else value


def summary_block(
    measurement: Measurement,
    summaries: Sequence[LaunchSummary],
    figures: CaseFigures,
    utilisation: Utilisation | None = None,
) -> str:
    """Return the block that rank 0 of a benchmark script prints, over all launches of the case."""
    case, schedule = measurement.case, measurement.case.schedule
    config = ", ".join(f"{name}={value}" for name, value in case.work().items())
    lines = [
        f"=== {'DDP Scaling' if case.trains else 'Collective'} Benchmark ===",
        f"World size       : {case.world_size}",
        f"Device           : {measurement.launches[0].ranks[0].placement.device}",
        f"Config           : {config}",
        f"Warmup steps     : {schedule.warmup}{_extra_warmups(measurement)}",
        f"Measured steps   : {_measured_steps(measurement)}",
    ]
    if (step := step_line(measurement)) is not None:
        lines.append(f"Step ends at     : {step}")
    if figures.call is not None:
        lines += _of_call(figures.call)
    else:
        lines += _of_training(measurement, summaries, figures)
    numerics = measurement.launches[0].ranks[0].numerics
    if numerics is not None:
        lines.append(f"Numerics         : {_describe_numerics(numerics)}")
    if utilisation is not None:
        lines.append(f"MFU              : {utilisation}")
    lines += _of_clocks(measurement)
    lines += utilisation_lines(utilisation_figures(measurement.launches))
    if figures.energy_j is not None:
        lines.append(f"Energy           : {figures.energy_j:.3g} J per sample, all GPUs")
    return "\n".join(lines)


def _measured_steps(measurement: Measurement) -> str:
    """Return the number of timed steps of the launches, which short steps or a busy CPU raise."""
    schedule = measurement.case.schedule
    counts = [len(launch.step_s) for launch in measurement.launches]
    one = len(counts) == 1
    where = "" if one else f" in each of {counted(len(counts), 'launch')}"
    if max(counts) <= schedule.measured:
        return f"{schedule.measured} / {schedule.steps}{where}"
    steps = str(counts[0]) if one else f"{min(counts)} to {max(counts)}"
    if measurement.case.tier == "gpu":
        return f"{steps}{where}, for clocks and energy"
    return f"{steps}{where}, until enough were undisturbed"


def _of_training(
    measurement: Measurement, summaries: Sequence[LaunchSummary], figures: CaseFigures
) -> list[str]:
    case = measurement.case
    level_ms = statistics.median(summary.values[STEP_TIME.name] for summary in summaries) * 1e3
    mean_ms = statistics.median(summary.mean_step_s for summary in summaries) * 1e3
    samples = case.samples_per_step * sum(len(launch.step_s) for launch in measurement.launches)
    return [
        f"Avg step time    : {mean_ms:.2f} ms (the mean; a table has the median)",
        f"Gated step       : {level_ms:.2f} ms (the level, without disturbances)",
        f"Throughput       : {figures.throughput:,.0f} {figures.unit}/s",
        f"Measured samples : {samples:,}",
    ]


def _of_call(call: CallFigures) -> list[str]:
    return [
        f"Typical call     : {call.call_s * 1e6:.1f} µs",
        f"Algorithm bandw. : {call.algorithm_bytes_per_s / 1e9:.3f} GB/s",
        f"Bus bandwidth    : {call.bus_bytes_per_s / 1e9:.3f} GB/s",
    ]


def _extra_warmups(measurement: Measurement) -> str:
    """Return the most extra warm-up steps of any launch; an empty text on the CPU tier."""
    taken = [
        rank.extra_warmup
        for launch in measurement.launches
        for rank in launch.ranks
        if rank.extra_warmup is not None
    ]
    if not taken:
        return ""
    most = max(warm_up.steps for warm_up in taken)
    if all(warm_up.steady for warm_up in taken):
        return f", after up to {most} until the GPUs were steady"
    return f", after up to {most}, and a GPU was not steady then"


def _of_clocks(measurement: Measurement) -> list[str]:
    """Return the line of the GPUs' SM clock over all ranks and launches, or none without one."""
    ranks = [rank for launch in measurement.launches for rank in launch.ranks]
    clocks = [mhz for rank in ranks if (mhz := rank.clock_mhz("sm_clock_mhz")) is not None]
    if not clocks:
        return []
    low, high = round(min(clocks)), round(max(clocks))
    return [f"SM clock         : {low if low == high else f'{low} to {high}'} MHz under load"]


def false_alarm_line(rate: float, alpha: float) -> str:
    """Return the chance of a false alarm, of a whole session and of each of its verdicts."""
    return (
        f"if nothing is slower, the chance of any REGRESSION is {short_percent(rate)}"
        f" (of each {short_percent(alpha)})"
    )


def _describe_numerics(numerics: Numerics) -> str:
    products = "off" if numerics.matmul_precision == "highest" else numerics.matmul_precision
    return (
        f"TF32 {products} in products, {'on' if numerics.convolution_tf32 else 'off'} in"
        f" convolutions; cudnn.benchmark {'on' if numerics.cudnn_benchmark else 'off'};"
        f" allocator {numerics.allocator}"
    )


# The explanation of a longer step, as lines of text.


_SHOWN = 0.1  # smaller terms, as a share of the step's change, are left out
_MOST = 4  # terms shown
CHANGED_TERMS = "terms that changed, ms"


def explanation_lines(explanation: Explanation) -> list[str]:
    """Return the causes, one in a line, the largest first; then the terms that changed."""
    change = f"{explanation.step_change_s * 1e3:+.2f} ms"
    head = f"where the {change} of a step went:"
    if explanation.step_change_s <= 0:
        launches = counted(explanation.launches, "probed launch")
        head = f"the parts of a step do not show why: in {launches} it changed by {change}"
    return [
        head,
        *(f"  {cause_line(cause)}" for cause in explanation.causes),
        *_changed(explanation),
    ]


def cause_line(cause: Cause) -> str:
    """Return the size of a cause, its share of the change, and its evidence."""
    return (
        f"{'likely ' if cause.likely else ''}{cause.kind} {cause.change_s * 1e3:+.2f} ms"
        f"{_share(cause)}: {'; '.join(cause.evidence)}"
    )


def _share(cause: Cause) -> str:
    """Return the share of the change. A cause can be larger than the change, if terms shrank."""
    if cause.share >= 1.005:
        return " (more than the whole change, since other terms shrank)"
    return "" if cause.share >= 0.995 else f" ({cause.share:.0%} of it)"


def _changed(explanation: Explanation) -> list[str]:
    least = _SHOWN * abs(explanation.step_change_s)
    changed = [term for term in explanation.terms if abs(term.change) >= least]
    changed.sort(key=lambda term: abs(term.change), reverse=True)
    shown = ", ".join(map(_term, changed[:_MOST]))
    return [f"  {CHANGED_TERMS}: {shown}"] if changed else []


def _term(term: Delta) -> str:
    change = change_text(term.name, milliseconds(term.before), milliseconds(term.after))
    return f"{change} (uncertainty ± {milliseconds(term.uncertainty)})"


# The findings of the second stage of a session, as lines of text.


def settled_note(result: SuiteResult, case_id: str) -> str | None:
    """Return what the second stage found of the case, or None if it has nothing to say."""
    settled = result.settled.get(case_id)
    if settled is None:
        return None
    return "; ".join(_parts(settled, is_green=_is_green(result, case_id))) or None


def settled_causes(result: SuiteResult, case_id: str) -> tuple[str, ...]:
    """Return the commit, if it was found, and what the slower case does otherwise."""
    settled = result.settled.get(case_id)
    if settled is None:
        return ()
    commit = () if settled.culprit is None else (culprit_text(settled.culprit),)
    return (*commit, *settled.causes)


def why_slower(result: SuiteResult, case_id: str) -> tuple[str, ...]:
    """Return all that is known of why the case got slower, as lines."""
    why = result.explanations.get(case_id)
    return (*settled_causes(result, case_id), *(explanation_lines(why) if why else ()))


def unkept_lines(result: SuiteResult) -> list[str]:
    """Return why the stored session cannot run again, if something was stored."""
    if not result.saved or result.unkept is None:
        return []
    return [f"the code of this session cannot be run again by later ones: {result.unkept}"]


def _is_green(result: SuiteResult, case_id: str) -> bool:
    own = (one for one in result.asserted_findings() if one.case_id == case_id)
    return all(one.verdict.outcome.is_good for one in own)


def _parts(settled: Settled, *, is_green: bool) -> Iterator[str]:
    if settled.unchanged:
        yield f"unchanged: code, packages and options are those of {settled.label}"
        if settled.machine:
            yield f"the machine: {', '.join(settled.machine)}"
        return
    if settled.pairs and is_green:  # else the reason of the verdict states it
        yield (
            f"settled by {counted(settled.pairs, 'pair')} of launches of today's code and that of"
            f" {settled.label} in {describe_duration(settled.seconds)}"
        )
    elif settled.as_before:
        yield "its code is that of the newest red session, so it was not launched again"
    if settled.problem and not settled.as_before:
        yield settled.problem if settled.pairs else f"not settled: {settled.problem}"
    if is_green:
        return
    if settled.changed:
        yield f"changed since {settled.label}: {', '.join(settled.changed)}"
    if settled.needed_s is not None:
        yield f"about {describe_duration(settled.needed_s)} would be enough"
