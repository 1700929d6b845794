"""The terminal's table of a suite: a row for each case, and a line for each verdict but PASS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import STEP_TIME, metric_title
from ddp_perf.core.metric_history import REFERENCE_SESSIONS
from ddp_perf.core.verdict import Outcome
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import ABSENT, at_most_percent, counted, percent, without_figures
from ddp_perf.report.ruled_out import ruled_out_lines
from ddp_perf.report.saved import saving_notes
from ddp_perf.report.terminal.columns import figure_cells, figure_headings
from ddp_perf.report.terminal.explanation import explanation_lines
from ddp_perf.report.terminal.links import link_lines, link_notes
from ddp_perf.report.terminal.nodes import node_notes
from ddp_perf.report.terminal.output import output_lines
from ddp_perf.report.terminal.pace import pace_notes
from ddp_perf.report.terminal.script import script_notes
from ddp_perf.report.terminal.settled import cause_notes, settled_notes, unkept_lines
from ddp_perf.report.terminal.targets import target_lines
from ddp_perf.report.terminal.text import finding_note
from ddp_perf.report.untested import untested_lines
from ddp_perf.report.verdicts import NO_TEST, mark_of, worst
from ddp_perf.session.result import SuiteResult, is_waiting

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
    table = plain_table()
    headings = figure_headings(result)
    table.add_column("case", overflow="fold")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", max_width=len(Outcome.INCOMPARABLE.value))
    table.add_column("min.\ndet.", justify="right", no_wrap=True)
    names = short_names(result.measurements)
    for case_id, measurement in result.measurements.items():
        name = names[case_id]
        if not measurement.is_complete:
            failed = "FAILED" if result.is_requested(case_id) else f"FAILED\n{NO_TEST}"
            table.add_row(name, *[ABSENT] * len(headings), failed, ABSENT)
        else:
            cells = figure_cells(result, measurement.case)
            table.add_row(name, *cells, *_verdict_cells(result, case_id))
    width = max(width, NARROWEST)
    lines = [*rendered(table, width), *link_lines(result, width)]
    notes = [
        *_shared_batches(result),
        *_passed(result),
        *target_lines(result),
        *ruled_out_lines(result),
        *_notes(result),
    ]
    return "\n".join([*lines, *wrapped(notes, width)])


def _verdict_cells(result: SuiteResult, case_id: str) -> list[str]:
    """Return the worst verdict, and the minimum detectable effect on the step time."""
    findings = [finding for finding in result.findings if finding.case_id == case_id]
    step = result.finding(case_id, STEP_TIME.name)
    detectable = step.verdict.minimum_detectable if step else None
    return [
        _verdict(result, findings),
        percent(detectable),
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
    price, unit = first.case.price_per_gpu_hour, first.launches[0].unit.name
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


def _verdict(result: SuiteResult, findings: Sequence[Finding]) -> str:
    """Return the worst verdict, with its mark."""
    if not findings:
        return ABSENT
    finding = worst(result, findings)
    mark = mark_of(result, finding)
    outcome = finding.verdict.outcome.value
    return outcome if mark is None else f"{outcome}\n{mark}"
