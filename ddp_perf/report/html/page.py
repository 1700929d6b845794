"""The report as one HTML file. It uses no network, and all texts in it are escaped."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from ddp_perf.core.environment import Environment
from ddp_perf.core.measurement import Finding, Measurement
from ddp_perf.core.metric import EXACT, STEP_TIME
from ddp_perf.history.records import HistoryPoint
from ddp_perf.history.text import AUDIT_MEANING
from ddp_perf.render.model import Status, Table
from ddp_perf.render.tables import short_names
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.figures import (
    HIDDEN,
    MEANING,
    MEANINGS,
    NOT_AS_THE_DOCUMENT,
    TITLE,
    gain_table,
    series_of,
    shown_step,
    utilisation_table,
)
from ddp_perf.report.html.model_page import environment
from ddp_perf.report.html.svg_plots import (
    Stack,
    efficiency_bars,
    epoch_bars,
    launch_boxes,
    power_plot,
    rank_boxes,
    session_plot,
    speedup_bars,
    step_plot,
    term_plot,
    throughput_plot,
)
from ddp_perf.report.next_steps.session import after_session
from ddp_perf.report.rows import CaseRow, ReportSummary, untested_lines
from ddp_perf.report.session_report import open_cases
from ddp_perf.report.source import ReportSource
from ddp_perf.report.status import NO_TEST, status_of
from ddp_perf.report.terminal.doctor import topology_rows
from ddp_perf.report.terminal.step_terms import (
    advice_lines,
    amdahl_lines,
    not_shown,
    profiles_text,
    rank_lines,
    term_table,
)
from ddp_perf.report.terminal.table import (
    device_of,
    headline,
    link_lines,
    link_notes,
    node_lines,
    output_lines,
)
from ddp_perf.report.terminal.text import (
    describe_finding,
    describe_launch_failure,
    rank_utilisation_lines,
    step_line,
    why_slower,
)
from ddp_perf.selftest.curve import conclusion_of
from ddp_perf.session.gains import gains_of
from ddp_perf.session.result import SuiteResult

# The sections of the page for each suite and each case: figures, plots and texts, in order.


_WIDTH = 100  # columns of a table that is shown as text
Captioned = tuple[str, Markup]  # a plot after its caption


class CaseSection(msgspec.Struct, frozen=True, kw_only=True):
    """One case, in a fold that shows its name."""

    row: CaseRow
    name: str  # without the parts that all cases of the suite share
    findings: tuple[str, ...]  # every verdict with its reason
    why: tuple[str, ...]  # the explanation, of a case that got slower
    advice: tuple[str, ...]
    failures: tuple[str, ...]
    plots: tuple[Markup, ...]
    command: str | None


class TermSection(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of each step of a suite."""

    plot: Markup
    table: Table


class SuiteSection(msgspec.Struct, frozen=True, kw_only=True):
    """One suite."""

    title: str
    result: SuiteResult
    figures: Table
    untested: list[str]  # what no test asserts
    tables: list[str]  # of links and profiles, as the terminal shows them
    cases: tuple[CaseSection, ...]
    scaling: tuple[Captioned, ...]
    laws: list[str]  # Amdahl's, of each scaling curve
    output: list[str]  # what the ranks printed, and what NCCL chose
    terms: TermSection | None
    utilisation: Table
    gains: list[Table]  # what each technique gains
    changed: tuple[str, ...]  # changes of machine and software since the baseline
    machine: dict[str, object]
    topology: list[list[str]]


def suite_section(
    result: SuiteResult,
    rows: Sequence[CaseRow],
    sessions: Mapping[tuple[str, str], Sequence[HistoryPoint]],
) -> SuiteSection:
    """Return the section of one suite.

    ``rows`` has one row for each case, in order. ``sessions`` has the history by accelerator and
    case.
    """
    key = result.environment.accelerator_key
    names = short_names(result.measurements)
    return SuiteSection(
        title=headline(result),
        result=result,
        figures=suite_figures(rows, device_of(result)),
        untested=untested_lines(result),
        tables=_tables(result),
        cases=tuple(
            _case_section(result, row, names[row.case], sessions.get((key, row.case), ()))
            for row in rows
        ),
        scaling=(*_throughput_plots(result, rows), *_bar_plots(rows, names)),
        laws=amdahl_lines(result),
        output=output_lines(result),
        terms=_terms(result, rows, names),
        utilisation=utilisation_table(rows),
        gains=[gain_table(table, names[table.base]) for table in gains_of(result)],
        changed=tuple(dict.fromkeys(c for finding in result.findings for c in finding.changed)),
        machine=_present_fields(result.environment),
        topology=topology_rows(result.machine) if result.machine else [],
    )


def _throughput_plots(result: SuiteResult, rows: Sequence[CaseRow]) -> list[Captioned]:
    series = series_of(result, rows)
    return [(f"Throughput: {one.name}", throughput_plot(one)) for one in series]


def _bar_plots(rows: Sequence[CaseRow], names: Mapping[str, str]) -> list[Captioned]:
    """Draw speed-up and efficiency of the cases that have them, and the known epoch times."""
    plots = []
    if scaled := [row for row in rows if row.efficiency is not None]:
        shown = [names[row.case] for row in scaled]
        plots.append(("Speed-up", speedup_bars(scaled, shown)))
        plots.append(("Efficiency", efficiency_bars(scaled, shown)))
    if timed := [row for row in rows if row.epoch_s is not None]:
        plots.append(("Time of an epoch", epoch_bars(timed, [names[row.case] for row in timed])))
    return plots


def _case_section(
    result: SuiteResult, row: CaseRow, name: str, sessions: Sequence[HistoryPoint]
) -> CaseSection:
    measurement = result.measurements[row.case]
    return CaseSection(
        row=row,
        name=name,
        findings=tuple(
            _described(result, finding)
            for finding in result.findings
            if finding.case_id == row.case
        ),
        why=why_slower(result, row.case),
        advice=(
            *advice_lines(result, row.case),
            *filter(None, [not_shown(result, row.case)]),
            *_script(measurement),
            *_ranks(result, row.case),
            *node_lines(result, row.case),
            *rank_utilisation_lines(result, row.case),
        ),
        failures=tuple(map(describe_launch_failure, measurement.failures)),
        plots=_case_plots(result, row, sessions),
        command=result.commands.get(row.case),
    )


def _described(result: SuiteResult, finding: Finding) -> str:
    """Return the finding in words, with a mark if no test asserts its verdict."""
    text = describe_finding(finding)
    if status_of(result, finding) is not Status.UNTESTED:
        return text
    outcome = finding.verdict.outcome.value
    return text.replace(outcome, f"{outcome} {NO_TEST}", 1)


def _case_plots(
    result: SuiteResult, row: CaseRow, sessions: Sequence[HistoryPoint]
) -> tuple[Markup, ...]:
    plots = _step_plots(result, row)
    return (*plots, session_plot(sessions)) if len(sessions) > 1 else plots


def _tables(result: SuiteResult) -> list[str]:
    links = [*link_lines(result, _WIDTH), *link_notes(result)]
    profiles = [profiles_text(result, _WIDTH)] if result.profiles else []
    return ["\n".join(links), *profiles] if links else profiles


def _script(measurement: Measurement) -> list[str]:
    step = step_line(measurement)
    return [] if step is None else [f"a step ends at {step}"]


def _ranks(result: SuiteResult, case_id: str) -> list[str]:
    """Return the lines of the ranks, or none if the case finished no launch."""
    return rank_lines(result, case_id) if result.summaries.get(case_id) else []


def _step_plots(result: SuiteResult, row: CaseRow) -> tuple[Markup, ...]:
    measurement = result.measurements[row.case]
    if not measurement.launches:
        return ()
    finding = result.finding(row.case, STEP_TIME.name)
    baseline_ms = finding.baseline * 1e3 if finding and finding.baseline else None
    by_launch = step_plot(launch_boxes(measurement), "Steps of each launch", baseline_ms)
    if row.ranks == 1:
        return (by_launch,)
    return by_launch, step_plot(rank_boxes(measurement), "Steps of each rank, all launches", None)


def _terms(
    result: SuiteResult, rows: Sequence[CaseRow], names: Mapping[str, str]
) -> TermSection | None:
    """Return the terms of the cases that were probed, or None if none was."""
    stacks = _stacks(result, rows, names)
    if not stacks:
        return None
    return TermSection(
        plot=term_plot(stacks),
        table=term_table(result),
    )


def _stacks(result: SuiteResult, rows: Sequence[CaseRow], names: Mapping[str, str]) -> list[Stack]:
    stacks = []
    for row in rows:
        summaries = result.summaries.get(row.case, ())
        step = shown_step(summaries, row.step_s) if row.step_s is not None else None
        if step is not None and row.step_s is not None:
            stacks.append(Stack(name=names[row.case], step=step, step_s=row.step_s))
    return stacks


def _present_fields(environment: Environment) -> dict[str, object]:
    """Return the known fields of machine and software, by name."""
    fields = msgspec.structs.asdict(environment)
    return {name.replace("_", " "): value for name, value in fields.items() if value is not None}


# The report as one HTML file. It uses no network, and all texts in it are escaped.


def report_html(source: ReportSource, summary: ReportSummary) -> bytes:
    """Return the whole page in UTF-8. ``summary`` has the rows of ``source``."""
    rows = iter(summary.rows)
    sections = [
        suite_section(suite, list(itertools.islice(rows, len(suite.measurements))), source.sessions)
        for suite in source.suites
    ]
    curve = source.curve
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            summary=summary,
            Status=Status,
            sections=sections,
            next=after_session(source.suites),
            open_cases=open_cases(summary),
            meanings=MEANINGS,
            hidden=HIDDEN,
            gain_title=TITLE,
            gain_meaning=f"{MEANING} {NOT_AS_THE_DOCUMENT} No verdict depends on this table.",
            curve=curve,
            power=power_plot(curve) if curve else None,
            conclusion=conclusion_of(curve) if curve else "",
            audits=source.audits,
            audit_meaning=AUDIT_MEANING,
            false_alarms=false_alarm_rate(source),
            slowed=sorted({text for suite in source.suites for text in suite.injections}),
        )
    )
    return page.encode("utf-8", "replace")  # UTF-8 has no code for a lone surrogate


def false_alarm_rate(source: ReportSource) -> float:
    """Return the probability of any false REGRESSION: the sum over all tests (Bonferroni)."""
    return sum(
        suite.alpha
        for suite in source.suites
        for finding in suite.findings
        if finding.metric not in EXACT and finding.target is None
    )
