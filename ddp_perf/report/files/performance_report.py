"""``performance_report.txt``: how well each case scales, the causes, and advice (document 003)."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.tables import NARROWEST, wrapped
from ddp_perf.report.figures import utilisation_table
from ddp_perf.report.rows import CaseRow, ReportSummary
from ddp_perf.report.terminal.amdahl import amdahl_lines
from ddp_perf.report.terminal.gains import gain_lines
from ddp_perf.report.terminal.settled import why_slower
from ddp_perf.report.terminal.step_terms import advice_lines, decomposition_table
from ddp_perf.report.terminal.table import headline, suite_table
from ddp_perf.session.result import SuiteResult


def performance_report(suites: Sequence[SuiteResult], summary: ReportSummary) -> str:
    """Return the tables of the terminal, in 80 columns, and each case with its label and advice."""
    lines = [f"{summary.status.value}: {summary.headline}"]
    for suite in suites:
        title = headline(suite)
        lines += ["", title, "=" * len(title), suite.date, "", suite_table(suite, NARROWEST)]
        if (table := decomposition_table(suite, NARROWEST)) is not None:
            lines += ["", table]
        rows = [row for row in summary.rows if row.suite == suite.suite]
        if (table := utilisation_table(rows, NARROWEST)) is not None:
            lines += ["", table]
        if law := wrapped(amdahl_lines(suite), NARROWEST):
            lines += ["", *law]
        lines += gain_lines(suite, NARROWEST)
        for row in summary.rows:
            if row.suite == suite.suite and row.case in suite.measurements:
                lines += _case(suite, row)
    return "\n".join(lines) + "\n"


def _case(suite: SuiteResult, row: CaseRow) -> list[str]:
    """Return the lines of one case, or none if it has neither an explanation nor advice."""
    found = [*why_slower(suite, row.case), *advice_lines(suite, row.case)]
    return ["", row.case, *wrapped(found, NARROWEST)] if found else []
