"""Markdown for a pull request or a job, and GitHub's annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ddp_perf.render.markdown import SIGNS, markdown_escaped
from ddp_perf.render.model import Status
from ddp_perf.report.columns import COLUMNS
from ddp_perf.report.figures import (
    HEADINGS,
    MEANING,
    NOT_AS_THE_DOCUMENT,
    TITLE,
    compared_by,
    gain_rows,
)
from ddp_perf.report.rows import CaseRow, ReportSummary
from ddp_perf.session.gains import GainTable

# ``summary.md``: for a pull request, or for the summary of a GitHub job.


_MOST_ROWS = 200  # GitHub cuts a job's summary off at 1 MiB
_MOST_TABLES = 50


def summary_markdown(summary: ReportSummary) -> str:
    """Return the status, what is ruled out, what no test asserts, and the cases.

    Each case that is not green has its reason. A fold has all cases, one what techniques gain.
    """
    lines = [f"## {SIGNS[summary.status]} {summary.status.value}: {summary.headline}", ""]
    if stated := [*summary.ruled_out, *summary.untested]:
        lines += [*(f"- {markdown_escaped(line)}" for line in stated), ""]
    shown = [*summary.of(Status.RED), *summary.of(Status.UNDECIDED)]
    if shown:
        lines += [*_table(shown), ""]
        lines += [
            f"- **{markdown_escaped(row.case)}**: {markdown_escaped(_found(row))}"
            for row in _first(shown)
        ]
        lines.append("")
    lines += ["<details><summary>all cases</summary>", "", *_table(summary.rows), "", "</details>"]
    if summary.gains:
        lines += ["", f"<details><summary>{TITLE.lower()}</summary>", ""]
        for table in summary.gains[:_MOST_TABLES]:
            lines += _gains(table)
        lines += [f"{MEANING} {NOT_AS_THE_DOCUMENT}", "", "</details>"]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[CaseRow]) -> list[str]:
    lines = [
        f"| {' | '.join(heading for heading, _ in COLUMNS)} |",
        f"|---|{'---:|' * (len(COLUMNS) - 1)}",
        *(
            f"| {' | '.join(markdown_escaped(write(row)) for _, write in COLUMNS)} |"
            for row in _first(rows)
        ),
    ]
    if len(rows) > _MOST_ROWS:
        lines += ["", f"… and {len(rows) - _MOST_ROWS} more: see comprehensive_summary.csv"]
    return lines


def _gains(table: GainTable) -> list[str]:
    """Return the table of the techniques with one base."""
    return [
        f"Against {markdown_escaped(table.base)}, {compared_by(table)}:",
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|---|{'---:|' * (len(HEADINGS) - 1)}",
        *(f"| {' | '.join(map(markdown_escaped, row))} |" for row in gain_rows(table)),
        "",
    ]


def _first(rows: Sequence[CaseRow]) -> Sequence[CaseRow]:
    return rows[:_MOST_ROWS]


def _found(row: CaseRow) -> str:
    reason = row.reason if row.in_words is None else f"{row.in_words}; {row.reason}"
    return reason if row.cause is None else f"{reason}; why: {row.cause}"


# GitHub's workflow commands: ``::error title=…::message`` marks a job.
#
# https://docs.github.com/actions/reference/workflow-commands-for-github-actions


_LEVELS = {Status.RED: "error", Status.UNDECIDED: "warning"}
MOST = 10  # GitHub shows at most ten of a level in a step


def annotation_lines(summary: ReportSummary) -> list[str]:
    """Return a command for each red or undecided case, at most as many as GitHub shows."""
    return [
        _command(level, _text(row), {"title": f"{row.verdict}: {row.case}"})
        for status, level in _LEVELS.items()
        for row in summary.of(status)[:MOST]
    ]


def error_line(message: str, **properties: str) -> str:
    """Return the command of an error, with its file, line and title."""
    return _command("error", message, properties)


def is_github(environ: Mapping[str, str]) -> bool:
    """Return whether a GitHub workflow reads the output."""
    return environ.get("GITHUB_ACTIONS") == "true"


def append_step_summary(markdown: str, environ: Mapping[str, str]) -> None:
    """Append to the file that ``GITHUB_STEP_SUMMARY`` names, if it is set. Raises OSError."""
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(markdown)


def _text(row: CaseRow) -> str:
    ratio = "" if row.ratio is None else f"{row.metric} {row.ratio:.3f} × the baseline; "
    why = "" if row.cause is None else f"; why: {row.cause}"
    return ratio + row.reason + why


def _command(level: str, message: str, properties: Mapping[str, str]) -> str:
    named = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {named}::{_message(message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
