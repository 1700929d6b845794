"""The report of a session: what it rules out, what is not green and why, and all of its cases."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.model import Cell, Column, NextStep, Note, Report, Section, Status, Table
from ddp_perf.render.units import ABSENT, percent
from ddp_perf.report.figures import MEANING, NOT_AS_THE_DOCUMENT, TITLE, gain_table
from ddp_perf.report.rows import CaseRow, ReportSummary
from ddp_perf.session.gains import GainTable

PAGE, DATA = "index.html", "comprehensive_summary.csv"
_COLUMNS = (
    Column(title="case", words=True),
    Column(title="verdict", words=True),
    Column(title="ranks"),
    Column(title="step ms"),
    Column(title="throughput /s"),
    Column(title="speed-up"),
    Column(title="efficiency"),
    Column(title="ratio", meaning="this session ÷ its baseline: 1.05 is 5 % worse"),
    Column(title="99 % interval", meaning="of the ratio"),
    Column(title="min. det.", meaning="minimum detectable effect"),
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
    """Return a row for each case."""
    return Table(label="all cases", columns=_COLUMNS, rows=tuple(map(_cells, rows)))


def _cells(row: CaseRow) -> tuple[Cell, ...]:
    interval = ABSENT
    if row.ratio_low is not None and row.ratio_high is not None:
        interval = f"{row.ratio_low:.3f} to {row.ratio_high:.3f}"
    return (
        Cell(row.case, row.case),
        Cell(row.verdict, row.verdict, row.status),
        Cell(str(row.ranks), row.ranks),
        _cell(None if row.step_s is None else 1e3 * row.step_s, "{:.2f}"),
        _cell(row.throughput, "{:,.0f}"),
        _cell(row.speedup, "{:.2f}"),
        Cell(percent(row.efficiency, 0), row.efficiency),
        _cell(row.ratio, "{:.3f}"),
        Cell(interval),
        Cell(percent(row.minimum_detectable), row.minimum_detectable),
    )


def _cell(value: float | None, written: str) -> Cell:
    return Cell(ABSENT if value is None else written.format(value), value)


def _case(row: CaseRow) -> Section:
    found = [row.in_words, row.reason, None if row.cause is None else f"why: {row.cause}"]
    return Section(
        title=row.case,
        verdict=row.verdict,
        status=row.status,
        parts=tuple(Note(text=text) for text in found if text is not None),
    )


def _gains(tables: Sequence[GainTable]) -> Section:
    meaning = Note(text=f"{MEANING} {NOT_AS_THE_DOCUMENT}")
    return Section(
        title=TITLE.lower(),
        parts=(*(gain_table(table, table.base) for table in tables), meaning),
        media="wide",
    )
