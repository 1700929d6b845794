"""The terminal's table of a suite: a row for each case, and a line for each verdict but PASS."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ddp_perf.core.baseline import REFERENCE_SESSIONS
from ddp_perf.core.launch import KeptOutput, NcclChoice
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import metric_title
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.terminal import table_lines
from ddp_perf.render.units import (
    ABSENT,
    at_most_percent,
    counted,
    layout_text,
    milliseconds,
    short_number,
    short_percent,
    without_figures,
)
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.rows import case_rows, ruled_out_lines, saving_notes, untested_lines
from ddp_perf.report.terminal.text import (
    cause_notes,
    explanation_lines,
    finding_note,
    script_notes,
    settled_notes,
    unkept_lines,
)
from ddp_perf.session.gate.nodes import (
    ExposedByLink,
    NodeCompute,
    exposed_by_link,
    slowest_node,
)
from ddp_perf.session.result import LinkFinding, SuiteResult, is_waiting
from ddp_perf.stats.link import Link, LinkFit, Part

# The link that a suite of collectives measures: latency, bandwidth, and their changes.


_HEADINGS = (
    "ranks\n",
    "latency\nµs",
    "95 %\ninterval",
    "GB/s\n",
    "95 %\ninterval",
    "mis-\nfit",
    "lat.\n×",  # × the baseline's time, as is the next one
    "byte\n×",
)


def link_lines(result: SuiteResult, width: int) -> list[str]:
    """Return a table of the fitted links, or no line if no link was fitted."""
    fitted = [(link, link.fit) for link in result.links if link.fit is not None]
    if not fitted:
        return []
    table = plain_table()
    table.add_column("ring model\n(fitted)", overflow="fold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for link, fit in fitted:
        name, ranks = f"{link.kind}{_settings(link)}", _layout(link)
        table.add_row(name, ranks, *_fit_cells(fit), *_shift_cells(link))
    return ["", *rendered(table, width)]


def link_notes(result: SuiteResult) -> list[str]:
    """Return a note on each link without a fit, and on each slower latency or bandwidth."""
    unfitted = [_name(link) for link in result.links if link.fit is None]
    notes = []
    if unfitted:
        notes.append(
            f"no latency and bandwidth of {'; '.join(unfitted)}: too few sizes were measured"
            " without disturbance, or their times do not determine both"
        )
    return notes + [_slower(link, part) for link in result.links for part in link.slower]


def _slower(link: LinkFinding, part: Part) -> str:
    assert link.before is not None  # it was compared
    assert link.fit is not None
    assert link.shift is not None
    assert link.tolerance is not None
    shift = link.shift.latency if part == "latency" else link.shift.bandwidth
    sessions = "it is one session: how sessions differ is unknown"
    if shift.sessions is not None:
        sessions = f"its sessions: {shift.sessions[0]:.2f} to {shift.sessions[1]:.2f} ×"
    return (
        f"SLOWER LINK: {_name(link)}: {part} {_size(link.before, part)} →"
        f" {_size(link.fit.link, part)}, {shift.ratio:.2f} × the time of the baseline of"
        f" {str(link.baseline_date)[:10]} (tolerance {short_percent(link.tolerance)};"
        f" {sessions}): training over this link may be slower for this reason alone"
    )


def _size(link: Link, part: Part) -> str:
    if part == "latency":
        return f"{short_number(link.latency_s * 1e6)} µs"
    return f"{short_number(link.bytes_per_s / 1e9)} GB/s"


def _name(link: LinkFinding) -> str:
    ranks = f"{link.ranks} ranks" if link.nodes == 1 else f"{_layout(link)} ranks between nodes"
    return f"{link.kind}, {ranks}{_settings(link)}"


def _layout(link: LinkFinding) -> str:
    """Return the ranks: ``8`` of one node, ``2×8`` of two nodes."""
    return layout_text(link.ranks, link.ranks // link.nodes)


def _settings(link: LinkFinding) -> str:
    return "".join(f" {name}={value}" for name, value in link.env.items())


def _fit_cells(fit: LinkFit) -> list[str]:
    (quick, slow), (narrow, wide) = fit.latency_s, fit.bytes_per_s
    return [
        short_number(fit.link.latency_s * 1e6),
        f"{short_number(quick * 1e6)}–{short_number(slow * 1e6)}",
        short_number(fit.link.bytes_per_s / 1e9),
        f"{short_number(narrow / 1e9)}–{short_number(wide / 1e9)}",
        f"{fit.misfit:.0%}",
    ]


def _shift_cells(link: LinkFinding) -> list[str]:
    if link.shift is None:
        return [ABSENT] * 2
    return [f"{shift.ratio:.2f}" for shift in (link.shift.latency, link.shift.bandwidth)]


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


# The terminal's table of a suite: a row for each case, and a line for each verdict but PASS.


_QUIET = (
    Outcome.PASS,
    Outcome.NO_BASELINE,
    Outcome.MEETS_TARGET,
)  # these need no line of their own


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


def suite_table(result: SuiteResult, width: int) -> str:
    """Return the table, what the session rules out, and the verdicts that need attention.

    They are at most ``width`` columns wide.
    """
    width = max(width, NARROWEST)
    table = suite_figures(case_rows(result))
    lines = [*table_lines(table, width), *link_lines(result, width)]
    notes = [
        *_shared_batches(result),
        *_passed(result),
        *target_lines(result),
        *ruled_out_lines(result),
        *_notes(result),
    ]
    return "\n".join([*lines, *wrapped(notes, width)])


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


def _notes(result: SuiteResult) -> list[str]:
    findings, names = result.asserted_findings(), short_names(result.measurements)
    notes = [
        finding_note(finding, names[finding.case_id])
        for finding in findings
        if finding.verdict.outcome not in _QUIET
        or finding.drift is not None
        or finding.known
        or finding.off_level
        if not finding.disturbance and not _is_plain_waiting(finding)
    ]
    notes += _waiting(findings, names)
    notes += [*_by_note(settled_notes(result), names), *cause_notes(result, names)]
    for explanation in result.explanations.values():
        notes += [f"{names[explanation.case_id]}:", *explanation_lines(explanation)]
    if result.outlier_host is not None:
        notes.append(str(result.outlier_host))
    notes += _disturbances(findings, names)
    notes += untested_lines(result)
    notes += link_notes(result)
    notes += node_notes(result, names)
    notes += pace_notes(result)
    notes += script_notes(result, names)
    notes += output_lines(result)
    changes = dict.fromkeys(change for f in result.findings for change in f.changed)
    if changes:
        notes.append(f"changed since the baseline: {', '.join(changes)}")
    notes += _without_baseline(result, names)
    if result.costs:
        notes.append(_costs(result))
    return [*notes, *_by_note(saving_notes(result), names), *unkept_lines(result)]


def _without_baseline(result: SuiteResult, names: Mapping[str, str]) -> list[str]:
    """Return the number of cases that were never stored, and why others lack a level."""
    compared = {found.case_id for found in result.findings if found.sessions}
    never: set[str] = set()
    reasons: dict[str, str] = {}
    for found in result.asserted_findings():
        if found.verdict.outcome is not Outcome.NO_BASELINE or result.is_resolved(found):
            continue
        if found.case_id not in compared:
            never.add(found.case_id)
        elif not result.is_refused(found):  # a note on what was stored has the reason
            reasons.setdefault(found.case_id, found.verdict.reason)
    count = f"{counted(len(never), 'case')} without a baseline in {result.baseline_path}"
    return [*([count] if never else []), *_by_note(reasons, names)]


def _by_note(notes: Mapping[str, str], names: Mapping[str, str]) -> Iterator[str]:
    """Yield each note once, with the cases that it is about; the figures are of the first one."""
    groups: dict[str, list[str]] = {}
    for case_id, note in notes.items():
        groups.setdefault(without_figures(note), []).append(case_id)
    for ids in groups.values():
        same = {notes[case_id] for case_id in ids}
        yield f"{_cases(ids, names, alike=len(same) == 1)}: {notes[ids[0]]}"


def _cases(ids: Sequence[str], names: Mapping[str, str], *, alike: bool) -> str:
    """Return the name of a case, or the number of several with the one that figures are of."""
    if len(ids) == 1:
        return names[ids[0]]
    return counted(len(ids), "case") + ("" if alike else f", such as {names[ids[0]]}")


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


def _is_plain_waiting(finding: Finding) -> bool:
    """Return whether the finding waits for its first sessions, and there is nothing else to it."""
    more = finding.known or finding.drift or finding.off_level or finding.published
    return is_waiting(finding) and finding.verdict.upper is not None and not more


def _waiting(findings: Sequence[Finding], names: Mapping[str, str]) -> list[str]:
    """Return a line for each case with findings that only wait for their first sessions."""
    by_case: dict[str, list[str]] = {}
    for finding in findings:
        verdict = finding.verdict
        if _is_plain_waiting(finding) and verdict.ratio and verdict.upper:
            bound = at_most_percent(verdict.upper - 1)
            text = f"{metric_title(finding.metric)} {verdict.ratio:.3f} × (at most +{bound})"
            by_case.setdefault(finding.case_id, []).append(text)
    too_few = f"{Outcome.UNDECIDED.value}, too few sessions"
    return [
        f"{too_few}: {names[case_id]}: {', '.join(texts)}" for case_id, texts in by_case.items()
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


def _disturbances(findings: Sequence[Finding], names: Mapping[str, str]) -> list[str]:
    """Return a line for each disturbance, without figures of the cases, which mean nothing."""
    disturbed: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.disturbance:
            disturbed.setdefault(without_figures(finding.disturbance), []).append(finding)
    lines = []
    for found in disturbed.values():
        titles = dict.fromkeys(metric_title(one.metric) for one in found)
        ids = [*dict.fromkeys(one.case_id for one in found)]
        cases = _cases(ids, names, alike=len({one.disturbance for one in found}) == 1)
        lines.append(
            f"{Outcome.INVALID.value}: {', '.join(titles)} of {cases}: {found[0].disturbance}"
        )
    return lines
