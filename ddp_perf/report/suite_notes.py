"""The notes of a suite: all that a reader should know beside its verdicts."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.core.case import Case
from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.core.measurement import Measurement
from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.units import counted, milliseconds, short_names
from ddp_perf.report.case_text import script_notes, unkept_lines
from ddp_perf.session.gate.nodes import ExposedByLink, NodeCompute, exposed_by_link, slowest_node
from ddp_perf.session.result import SuiteResult, is_waiting


def headline(result: SuiteResult) -> str:
    """Return suite, accelerator, nodes, and the host of a pool; an injection before any figure."""
    where = result.environment
    title = f"{result.suite} on {where.accelerator}"
    if where.nodes > 1:
        title += f", up to {where.nodes} nodes: {where.hosts}"
    if where.alike_nodes is not None:
        pool = f" of pool {where.pool}" if where.pool is not None else ""
        title += f", each of {counted(where.alike_nodes, 'node')}{pool}"
    elif where.pool is not None:
        title += f", host {where.host} of pool {where.pool}"
    if result.injections:
        title += f", slowed on purpose: {', '.join(result.injections)}"
    return title


def suite_notes(result: SuiteResult) -> list[str]:
    """Return what a reader should know of the machine, the ranks and the costs of a suite."""
    names = short_names(result.measurements)
    changed = dict.fromkeys(change for found in result.findings for change in found.changed)
    return [
        *emulation_notes(measured.case for measured in result.measurements.values()),
        *_shared_batches(result),
        *([] if result.outlier_host is None else [str(result.outlier_host)]),
        *node_notes(result, names),
        *pace_notes(result),
        *script_notes(result, names),
        *output_lines(result),
        *([f"changed since the baseline: {', '.join(changed)}"] if changed else []),
        *([_costs(result)] if result.costs else []),
        *unkept_lines(result),
    ]


def details(result: SuiteResult) -> list[str]:
    """Return what passed, the targets, how far the baseline is, and what only rotates."""
    return [*_passed(result), *target_lines(result), *list_young_levels(result), *_rotating(result)]


def _rotating(result: SuiteResult) -> list[str]:
    """Return a line on the cases whose times fail nothing, if the suite has some."""
    if not (rotating := [case for case in result.measurements if not result.gates(case)]):
        return []
    verb = "rotates" if len(rotating) == 1 else "rotate"
    return [
        f"{counted(len(rotating), 'case')} {verb} over a week, and may only be red by structure and"
        " loss: times and memory are reported"
    ]


def emulation_notes(cases: Iterable[Case]) -> list[str]:
    """Return a line for each network of emulated cases: what it is, and what is not in it."""
    networks = Counter(case.network for case in cases if case.network is not None)
    return [
        f"{counted(number, 'emulated case')}: one rank runs, and its collectives take the time of"
        f" {network}; the others' delays, congestion, and the memory traffic of real collectives"
        " are not in it"
        for network, number in networks.items()
    ]


def _shared_batches(result: SuiteResult) -> list[str]:
    """Return a line on the batches that all ranks share; their sizes may not be in the names."""
    batches = {m.case.global_batch: None for m in result.measurements.values()}
    shared = [f"{batch:,}" for batch in batches if batch is not None]
    return [f"strong scaling: all ranks share {', '.join(shared)} samples a step"] if shared else []


def _passed(result: SuiteResult) -> list[str]:
    """Return a line on the metrics that passed throughout, if another one did not.

    The table shows the worst verdict of a case, and so hides them.
    """
    outcomes: dict[str, set[Outcome]] = {}
    met = True
    for finding in result.asserted_findings():
        if finding.target is not None:
            met = met and finding.verdict.outcome is Outcome.MEETS_TARGET
        else:
            outcomes.setdefault(finding.metric, set()).add(finding.verdict.outcome)
    titles = [metric_title(metric) for metric, found in outcomes.items() if found == {Outcome.PASS}]
    if not titles or (met and len(titles) == len(outcomes)):
        return []
    return [f"PASS in every judged case: {', '.join(titles)}"]


def list_young_levels(result: SuiteResult) -> list[str]:
    """Return a line for each number of sessions that a reference still lacks.

    There is none for cases that wait for their first sessions: their verdicts name that already.
    """
    lacking: dict[int, set[str]] = {}
    waiting = {found.case_id for found in result.findings if is_waiting(found)}
    for found in result.findings:
        if 0 < found.sessions < REFERENCE_SESSIONS and found.case_id not in waiting:
            lacking.setdefault(REFERENCE_SESSIONS - found.sessions, set()).add(found.case_id)
    when = "at least 12 hours later" + (" or on another host" if result.environment.pool else "")
    return [
        f"{counted(len(cases), 'case')}: the level rests on"
        f" {counted(REFERENCE_SESSIONS - missing, 'session')} of {REFERENCE_SESSIONS};"
        f" --save-baseline=append adds one {when}, if that is neither slower nor faster"
        for missing, cases in sorted(lacking.items())
    ]


def _costs(result: SuiteResult) -> str:
    names = short_names(result.measurements)
    first = result.measurements[next(iter(result.costs))]
    price, unit = first.case.cost.price_per_gpu_hour, first.launches[0].unit.name
    shown = []
    for case_id, cost in result.costs.items():
        epoch = f" (an epoch {cost.per_epoch:.4g})" if cost.per_epoch is not None else ""
        shown.append(f"{names[case_id]} {cost.per_million:.4g}{epoch}")
    return f"cost per million {unit} at {price:g} per GPU-hour: {', '.join(shown)}"


# The nodes of a case in words: the slowest one, and the link that the ranks wait for.


def node_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return the lines of a case of several nodes; none of another case, or without terms."""
    measurement, rows = result.measurements[case_id], result.summaries.get(case_id, ())
    if measurement.case.nodes == 1 or not rows:
        return []
    node = slowest_node(measurement.launches, rows)
    link = exposed_by_link(case_id, result.measurements, result.summaries)
    return [
        *([_of_node(node)] if node is not None else []),
        *([_of_link(link)] if link is not None else []),
    ]


def node_notes(result: SuiteResult, names: dict[str, str]) -> list[str]:
    """Return the lines of each case of several nodes, with its name."""
    return [
        f"{name}: {line}" for case_id, name in names.items() for line in node_lines(result, case_id)
    ]


def _of_node(node: NodeCompute) -> str:
    return f"slowest node: {'' if node.is_slower else 'none beyond chance; '}{node}"


def _of_link(link: ExposedByLink) -> str:
    where = {True: "between nodes", False: "within a node", None: "not certain"}
    part = link.between_s
    ends = ""
    if part.low is not None and part.high is not None:
        ends = f" ({milliseconds(part.low)} to {milliseconds(part.high)})"
    return (
        f"slowest link: {where[link.is_mostly_between]}; of {milliseconds(link.exposed_s.value)} ms"
        f" exposed communication, {milliseconds(part.value)} ms{ends} are more than on one node,"
        f" {counted(link.launches, 'launch')}"
    )


# The output of a suite's ranks: its folder, and the choice that NCCL's lines state.


def output_lines(result: SuiteResult) -> list[str]:
    """Return warnings, what NCCL chose, the folders of the outputs, and why one is not kept."""
    kept = dict(_kept(result))
    names = short_names(result.measurements)
    chosen: dict[str, list[str]] = {}
    for case_id, output in kept.items():
        if output.nccl is not None:
            chosen.setdefault(_choice(output.nccl), []).append(names[case_id])
    lines = [f"WARNING: {warning}" for warning in result.warnings]
    lines += [f"{', '.join(cases)}: {choice}" for choice, cases in chosen.items()]
    written = [os.path.relpath(f"{out.directory}/.") for out in kept.values() if not out.problem]
    if written:
        where = written[0] if len(written) == 1 else os.path.commonpath(written)
        lines.append(f"printed by the ranks of {counted(len(written), 'case')}: {where}")
    problems = [f"{names[id_]}: {one.problem}" for id_, one in kept.items() if one.problem]
    return [*lines, *(f"the ranks' output is not kept: {problem}" for problem in problems)]


def _kept(result: SuiteResult) -> Iterator[tuple[str, KeptOutput]]:
    for case_id, measurement in result.measurements.items():
        for launch in measurement.launches:
            if launch.output is not None:
                yield case_id, launch.output


def _choice(nccl: NcclChoice) -> str:
    """Return the choice as ``NCCL 2.27.5, 24 channels (16 NVLS), via P2P/CUMEM``."""
    parts = [f"NCCL {nccl.version}" if nccl.version else "NCCL"]
    if nccl.channels is not None:
        nvls = f" ({nccl.nvls_channels} NVLS)" if nccl.nvls_channels else ""
        parts.append(f"{counted(nccl.channels, 'channel')}{nvls}")
    if nccl.transports:
        parts.append(f"via {' and '.join(nccl.transports)}")
    return ", ".join([*parts, *nccl.algorithms])


# Notes on cases whose host limits the step time, and on injected slow-downs.


def pace_notes(result: SuiteResult) -> list[str]:
    """Return a note on host-bound cases, and one on the measured size of ``compute:N%``.

    Each is left out if no case has it.
    """
    names = short_names(result.measurements)
    bound = [names[id_] for id_, each in result.measurements.items() if _is_host_bound(each)]
    slowed = {names[id_]: _slowdown(each) for id_, each in result.measurements.items()}
    measured = [f"{name} {share:+.1%}" for name, share in slowed.items() if share is not None]
    notes = []
    if bound:
        is_script = any(each.case.script is not None for each in result.measurements.values())
        remedies = "CUDA graphs, torch.compile" if is_script else "cuda_graphs, compile"
        notes.append(
            f"bound by the host: {', '.join(bound)}. Their GPUs wait for Python to launch kernels."
            f" {remedies} or larger batches can help; a faster GPU does not"
        )
    if measured:
        notes.append(f"measured slow-down by injected compute: {', '.join(measured)}")
    return notes


def _is_host_bound(measurement: Measurement) -> bool:
    """Return whether the host limited the step time in at least half of the launches."""
    bound = [launch.host_bound is True for launch in measurement.launches]
    return bool(bound) and 2 * sum(bound) >= len(bound)


def _slowdown(measurement: Measurement) -> float | None:
    """Return the median over launches of the most slowed rank's share, or None without any."""
    launches = [[rank.slowdown for rank in launch.ranks] for launch in measurement.launches]
    each = [[share for share in ranks if share is not None] for ranks in launches]
    return statistics.median(map(max, each)) if each and all(each) else None


# The line on the absolute targets of a suite: how many are met, missed and undecided.


_NAMES = {
    Outcome.MEETS_TARGET: "met",
    Outcome.MISSES_TARGET: "missed",
    Outcome.UNDECIDED: "undecided",
    Outcome.INVALID: "invalid",
}


def target_lines(result: SuiteResult) -> list[str]:
    """Return a line with the number of each outcome, or none if no test asserts a target."""
    found = [finding for finding in result.asserted_findings() if finding.target is not None]
    if not found:
        return []
    count = Counter(finding.verdict.outcome for finding in found)
    numbers = [f"{count[outcome]} {name}" for outcome, name in _NAMES.items() if count[outcome]]
    titles = dict.fromkeys(metric_title(finding.metric) for finding in found)
    return [f"{counted(len(found), 'target')}: {', '.join(numbers)} ({', '.join(titles)})"]
