"""GitHub's workflow commands, and the summary of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ddp_perf.render.model import Status
from ddp_perf.report.rows import CaseRow, ReportSummary

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
