"""The report of a session: what it rules out, what is not green and why, and all of its cases."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.metric import metric_title
from ddp_perf.render.model import CASE, Cell, Column, NextStep, Note, Report, Section, Status, Table
from ddp_perf.render.units import ABSENT, percent, suite_names
from ddp_perf.report.columns import RATIOS, ratio_cells, verdict_cell
from ddp_perf.report.figures import MEANING, NOT_AS_THE_DOCUMENT, TITLE, gain_table
from ddp_perf.report.rows import CaseRow, ReportSummary
from ddp_perf.session.gains import GainTable

PAGE, DATA = "index.html", "comprehensive_summary.csv"
_COLUMNS = (
    CASE,
    Column(title="verdict", words=True),
    Column(title="ranks"),
    Column(title="step ms"),
    Column(title="throughput /s"),
    Column(title="speed-up"),
    Column(title="efficiency"),
    *RATIOS,
)


def build_session(summary: ReportSummary, step: NextStep | None) -> Report:
    """Return what a person reads of a session. ``step`` is the next command after it."""
    shown = [*summary.of(Status.RED), *summary.of(Status.UNDECIDED)]
    return Report(
        title="performance",
        verdict=summary.status.value,
        status=summary.status,
        headline=summary.headline,
        about=tuple(Note(text=text) for text in (*summary.ruled_out, *summary.untested)),
        table=session_table(summary.rows),
        sections=(*map(_case, shown), *([_gains(summary.gains)] if summary.gains else [])),
        next=step,
        page=PAGE,
        data=DATA,
    )


def session_table(rows: Sequence[CaseRow]) -> Table:
    """Return a row for each case; with several suites, the suite is in the name."""
    names = suite_names([(row.suite, row.case) for row in rows])
    cells = tuple(map(_cells, rows, names))
    return Table(label="all cases", columns=_COLUMNS, rows=cells)


def open_cases(summary: ReportSummary) -> Table:
    """Return the cases that are not green, with the reasons."""
    columns = (
        CASE,
        Column(title="verdict", words=True),
        Column(title="of", meaning="the metric with the worst verdict", words=True),
        *RATIOS,
        Column(title="reason", words=True),
    )
    rows = [*summary.of(Status.RED), *summary.of(Status.UNDECIDED)]
    return Table(
        label="cases that are not green",
        columns=columns,
        rows=tuple(
            (
                Cell(row.case, row.case),
                verdict_cell(row),
                Cell(ABSENT if row.metric is None else metric_title(row.metric), row.metric),
                *ratio_cells(row),
                Cell("; ".join(_reasons(row))),
            )
            for row in rows
        ),
    )


def _reasons(row: CaseRow) -> list[str]:
    why = None if row.cause is None else f"why: {row.cause}"
    return [text for text in (row.in_words, row.reason, why) if text is not None]


def _cells(row: CaseRow, name: str) -> tuple[Cell, ...]:
    return (
        Cell(name, name),
        verdict_cell(row),
        Cell(str(row.ranks), row.ranks),
        _cell(None if row.step_s is None else 1e3 * row.step_s, "{:.2f}"),
        _cell(row.throughput, "{:,.0f}"),
        _cell(row.speedup, "{:.2f}"),
        Cell(percent(row.efficiency, 0), row.efficiency),
        *ratio_cells(row),
    )


def _cell(value: float | None, written: str) -> Cell:
    return Cell(ABSENT if value is None else written.format(value), value)


def _case(row: CaseRow) -> Section:
    return Section(
        title=row.case,
        verdict=row.verdict,
        status=row.status,
        parts=tuple(Note(text=text) for text in _reasons(row)),
    )


def _gains(tables: Sequence[GainTable]) -> Section:
    meaning = Note(text=f"{MEANING} {NOT_AS_THE_DOCUMENT}")
    return Section(
        title=TITLE.lower(),
        parts=(*(gain_table(table, table.base) for table in tables), meaning),
        media="wide",
    )
