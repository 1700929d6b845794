"""The report of a session: what it rules out, what is not green and why, and all of its cases."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.model import NextStep, Note, Report, Section, Status
from ddp_perf.report.columns import suite_figures
from ddp_perf.report.figures import MEANING, NOT_AS_THE_DOCUMENT, TITLE, gain_table
from ddp_perf.report.rows import CaseRow, ReportSummary
from ddp_perf.session.gains import GainTable

PAGE, DATA = "index.html", "comprehensive_summary.csv"


def build_session(summary: ReportSummary, step: NextStep | None) -> Report:
    """Return what a person reads of a session. ``step`` is the next command after it."""
    shown = [*summary.of(Status.RED), *summary.of(Status.UNDECIDED)]
    return Report(
        title="performance",
        verdict=summary.status.value,
        status=summary.status,
        headline=summary.headline,
        about=tuple(Note(text=text) for text in (*summary.ruled_out, *summary.untested)),
        table=suite_figures(summary.rows),
        sections=(*map(case_section, shown), *([_gains(summary.gains)] if summary.gains else [])),
        next=step,
        page=PAGE,
        data=DATA,
    )


def _reasons(row: CaseRow) -> list[str]:
    why = None if row.cause is None else f"why: {row.cause}"
    return [text for text in (row.in_words, row.reason, why) if text is not None]


def case_section(row: CaseRow) -> Section:
    """Return why a case is not green."""
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
