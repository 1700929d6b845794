"""The page of a session: its report, with the sections of each suite that only a page has."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ddp_perf.core.measurement import Finding
from ddp_perf.core.metric import EXACT, STEP_TIME, metric_title
from ddp_perf.history.chart import sessions_chart
from ddp_perf.history.records import HistoryPoint
from ddp_perf.history.text import AUDIT_MEANING
from ddp_perf.render.chart import Chart
from ddp_perf.render.model import (
    Cell,
    Note,
    Part,
    Plot,
    Report,
    Section,
    Status,
    Table,
    figures,
    notes,
    words,
)
from ddp_perf.render.units import ABSENT, percent_change, short_percent
from ddp_perf.report.case_text import (
    describe_launch_failure,
    rank_utilisation_lines,
    reason_lines,
    step_line,
)
from ddp_perf.report.charts import launches_chart, step_charts
from ddp_perf.report.commands.doctor import topology_rows
from ddp_perf.report.rows import CaseRow, ReportSummary, by_suite, resolved_text
from ddp_perf.report.session_report import case_section, rows_not_green
from ddp_perf.report.source import ReportSource
from ddp_perf.report.status import STORED, shown_verdict, status_of
from ddp_perf.report.step_terms import rank_lines
from ddp_perf.report.suite_notes import headline, node_lines
from ddp_perf.report.suite_sections import suite_sections
from ddp_perf.selftest.chart import power_chart
from ddp_perf.selftest.curve import PowerCurve, conclusion_of
from ddp_perf.session.result import SuiteResult

_MOST_SESSIONS = 60  # of a chart
_MOST_CHARTED = 20  # cases with charts of their own: each takes a tenth of a second
_WORDS = 3  # cases that the head names in words
_LEGEND = (
    "This page counts cases, and pytest counts tests. A case has the worst verdict of its tests."
    " RED: a test fails. UNDECIDED: no test fails, and a test without a decision is skipped"
    " (--ddp-strict may fail it). GREEN: all its tests pass. Accuracy over epochs is not shown: a"
    " benchmark trains for seconds"
)


def build_page(source: ReportSource, summary: ReportSummary, report: Report) -> Report:
    """Return the ``report`` of a session with all that is known of it; its rows: ``summary``.

    It reads as a newspaper: the verdict and the cause, the cases, how the time is spent, the
    machine.
    """
    found = by_suite(source.suites, summary.rows)
    differing = [row for row in rows_not_green(summary.rows) if row.in_words]
    cases = [f"{row.case}: {row.in_words}" for row in differing[:_WORDS]]
    return msgspec.structs.replace(
        report,
        title="Performance of data-parallel training",
        about=(*report.about, *notes(cases)),
        certainty=_certainty(source),
        sections=(
            *_cases(source, found),
            *(_suite(suite, rows) for suite, rows in found),
            *([_selftest(source.curve)] if source.curve else []),
            *([_audits(source.audits)] if source.audits else []),
        ),
        legend=_LEGEND,
    )


def _certainty(source: ReportSource) -> str | None:
    """Return the probability of any false REGRESSION: the sum over all tests (Bonferroni)."""
    rate = sum(
        suite.alpha
        for suite in source.suites
        for finding in suite.findings
        if finding.metric not in EXACT and finding.target is None
    )
    if not rate:
        return None
    return (
        f"if nothing is slower, the chance of any REGRESSION is {short_percent(rate)}, over all"
        " verdicts"
    )


# A case: why it is not green, and its steps. A green one has no charts of its own.


def _cases(
    source: ReportSource, suites: Sequence[tuple[SuiteResult, Sequence[CaseRow]]]
) -> Iterator[Section]:
    """Yield a section for each case that is not green, the red ones first."""
    found = [(suite, row) for suite, rows in suites for row in rows_not_green(rows)]
    found.sort(key=lambda pair: pair[1].status is not Status.RED)
    for place, (suite, row) in enumerate(found):
        section = case_section(suite, row)
        sessions = source.sessions.get((suite.environment.accelerator_key, row.case), ())
        plot = Plot(functools.partial(_charts, suite, row, sessions))
        plots = [plot] if place < _MOST_CHARTED else []
        parts = (*section.parts, *plots, *_details(suite, row))
        yield msgspec.structs.replace(section, parts=parts, opened=True)


def _details(suite: SuiteResult, row: CaseRow) -> Iterator[Part]:
    """Yield every verdict on a case, and what the ranks did."""
    measurement = suite.measurements[row.case]
    for failure in measurement.failures:
        yield Note(text=describe_launch_failure(failure), kind="output")
    findings = [found for found in suite.findings if found.case_id == row.case]
    if findings:
        yield _verdicts(suite, findings)
    step = step_line(measurement)
    ranks = rank_lines(suite, row.case) if suite.summaries.get(row.case) else []
    lines = [
        *([] if step is None else [f"a step ends at {step}"]),
        *ranks,
        *node_lines(suite, row.case),
        *rank_utilisation_lines(suite, row.case),
    ]
    if lines:
        yield Note(text="\n".join(lines), kind="output")
    if command := suite.commands.get(row.case):
        yield Note(text=f"Measure it again:\n{command}", kind="output")


def _verdicts(suite: SuiteResult, findings: Sequence[Finding]) -> Table:
    columns = (*words("metric", "verdict"), *figures("change"), *words("reason"))
    rows = tuple(_verdict(suite, found) for found in findings)
    label = f"every verdict on {findings[0].case_id}"
    return Table(label=label, columns=columns, rows=rows)


def _verdict(suite: SuiteResult, finding: Finding) -> tuple[Cell, ...]:
    """Return the cells of a verdict, with a mark if no test asserts it."""
    outcome, ratio = finding.verdict.outcome.value, finding.verdict.ratio
    shown = shown_verdict(suite, finding)
    reasons = [resolved_text(suite, finding)] if shown == STORED else reason_lines(finding)
    return (
        Cell(metric_title(finding.metric), finding.metric),
        Cell(shown, outcome, status_of(suite, finding)),
        Cell(ABSENT if ratio is None else percent_change(ratio), ratio),
        Cell("; ".join(reasons)),
    )


def _charts(suite: SuiteResult, row: CaseRow, sessions: Sequence[HistoryPoint]) -> Iterator[Chart]:
    measurement = suite.measurements[row.case]
    if measurement.launches:
        finding = suite.finding(row.case, STEP_TIME.name)
        yield from step_charts(measurement, finding.baseline if finding else None)
    if len(sessions) > 1:
        yield sessions_chart(sessions[-_MOST_SESSIONS:], STEP_TIME.name)


# A suite: its cases, how their time is spent, and the machine.


def _suite(suite: SuiteResult, rows: Sequence[CaseRow]) -> Section:
    sections = (
        Section(title="launches", parts=_launches(suite, rows)),
        *suite_sections(suite, rows),
        *(_green(suite, row) for row in rows if row not in rows_not_green(rows)),
        Section(title="machine and versions", parts=_machine(suite)),
    )
    opened = [
        msgspec.structs.replace(one, opened=one.status is None and one is not sections[-1])
        for one in sections
        if one.parts
    ]
    return Section(
        title=headline(suite), parts=(_origin(suite),), sections=tuple(opened), media="page"
    )


def _green(suite: SuiteResult, row: CaseRow) -> Section:
    parts = tuple(_details(suite, row))
    return Section(title=row.case, verdict=row.verdict, status=row.status, parts=parts)


def _origin(suite: SuiteResult) -> Note:
    commit = suite.environment.commit
    at = f", measured at commit {commit}" if commit else ""
    return Note(text=f"Judged against {suite.baseline_path}{at}.")


def _launches(suite: SuiteResult, rows: Sequence[CaseRow]) -> tuple[Part, ...]:
    if not any(suite.measurements[row.case].launches for row in rows):
        return ()
    return (Plot(lambda: filter(None, [launches_chart(suite, rows)])),)


def _machine(suite: SuiteResult) -> tuple[Part, ...]:
    fields = msgspec.structs.asdict(suite.environment)
    known = [(name.replace("_", " "), str(v)) for name, v in fields.items() if v not in (None, {})]
    tables = [_words("machine and versions", ("field", "value"), known)]
    topology = topology_rows(suite.machine) if suite.machine else []
    if len(topology) > 2:
        tables.append(_words("links between the GPUs", topology[0], topology[1:]))
    return tuple(tables)


def _words(label: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table.of_texts(words(*titles), rows)
    return msgspec.structs.replace(table, label=label)


# What is known of the gate itself.


def _selftest(curve: PowerCurve) -> Section:
    how = f"Measured by ddp-perf selftest on {curve.case_id}, with 95 % intervals."
    parts: tuple[Part, ...] = (
        Plot(lambda: [power_chart(curve)]),
        *notes((f"{conclusion_of(curve)}.", how)),
    )
    title = "What this gate detects on this machine"
    return Section(title=title, parts=parts, opened=True, media="page")


def _audits(audits: Sequence[str]) -> Section:
    parts = notes((*(f"{line}." for line in audits), AUDIT_MEANING))
    title = "What this gate finds of hidden slow-downs"
    return Section(title=title, parts=parts, opened=True, media="page")
