"""The texts of one case: its verdicts, its summary block, and the placement of its ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ddp_perf.core.launch import LaunchFailure, Numerics, Placement
from ddp_perf.core.measurement import Finding, Known, LaunchSummary, Look, Measurement
from ddp_perf.core.metric import STEP_TIME, is_target, metric_title
from ddp_perf.render.units import counted, percent_change, short_percent
from ddp_perf.report.terminal.script import step_line
from ddp_perf.report.terminal.utilisation import utilisation_lines
from ddp_perf.session.figures import CallFigures, CaseFigures, figures_alone
from ddp_perf.session.gate.utilisation import Utilisation, utilisation_of
from ddp_perf.stats.utilisation import utilisation_figures

WHOLE_TRACEBACK = "(These are the frames of your code; --ddp-json=FILE writes the whole traceback.)"


def describe_finding(finding: Finding) -> str:
    """Return the verdict with its figures, its reason, and all that is known about it."""
    verdict = finding.verdict
    lines = [f"{verdict.outcome.value}: {metric_title(finding.metric)} of {finding.case_id}"]
    if verdict.ratio is not None and finding.baseline_date is not None:
        lines[0] += f": {verdict.ratio:.3f} × the baseline of {finding.baseline_date[:10]}"
        if verdict.minimum_detectable is not None:
            lines[0] += f" (minimum detectable: {verdict.minimum_detectable:.1%})"
    lines.append(verdict.reason)
    lines += [_describe_look(look) for look in finding.earlier]
    if finding.changed:
        lines.append(f"changed since the baseline: {', '.join(finding.changed)}")
    return "\n".join([*lines, *_beside(finding)])


def finding_note(finding: Finding, name: str) -> str:
    """Return the verdict on a case of that name in one line, for a table of its figures."""
    verdict = finding.verdict
    what = f"{verdict.outcome.value}: {metric_title(finding.metric)} of {name}"
    return "; ".join([f"{what}: {verdict.reason}", *_beside(finding)])


def _beside(finding: Finding) -> list[str]:
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
        return f"{text}{size}; {grown}: mend it, or acknowledge it again with ddp-perf baseline ack"
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


def false_alarm_line(false_alarm_rate: float, alpha: float) -> str:
    """Return the chance of a false alarm, of a whole session and of each of its verdicts."""
    return (
        f"if nothing became slower, the probability of any REGRESSION here is"
        f" {short_percent(false_alarm_rate)} (of each verdict {short_percent(alpha)})"
    )


def _describe_numerics(numerics: Numerics) -> str:
    products = "off" if numerics.matmul_precision == "highest" else numerics.matmul_precision
    return (
        f"TF32 {products} in products, {'on' if numerics.convolution_tf32 else 'off'} in"
        f" convolutions; cudnn.benchmark {'on' if numerics.cudnn_benchmark else 'off'};"
        f" allocator {numerics.allocator}"
    )
