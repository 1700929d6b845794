"""The annotations of a report for GitHub and GitLab, at the lines of code that it names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ddp_perf.render.checkout import CHECKOUT, Checkout
from ddp_perf.render.model import COMMENT, Note, Report, Section, Status, Table, shown_names
from ddp_perf.render.units import counted, percent_change
from ddp_perf.render.visible import visible

# What both show: a mark for each line of a section, or for a section that names none.


_LEVELS = {Status.RED: ("error", "major"), Status.UNDECIDED: ("warning", "minor")}
_MOST_NOTES = 6  # of a mark
_MOST_TEXT = 1_000  # characters of a note: a traceback is longer
_RATIO = "ratio"  # the key of the column that states how much slower a case is
_Line = tuple[str, int]  # file and number


class _Mark(NamedTuple):
    status: Status
    title: str
    texts: list[str]
    line: _Line | None
    section: Section  # the first that has it


def _marks(report: Report, checkout: Checkout) -> Iterator[_Mark]:
    """Yield the marks, the red ones first, and of these the ones at a line, which cases share."""
    for status in _LEVELS:
        found: dict[_Line, list[Section]] = {}
        alone: list[tuple[None, list[Section]]] = []
        for section in report.sections:
            if section.status is status:
                lines = dict.fromkeys(_lines(section).values())
                for line in lines:
                    found.setdefault(line, []).append(section)
                if not lines:
                    alone.append((None, [section]))
        for at, (first, *others) in [*found.items(), *alone]:
            more = [f"and in {counted(len(others), 'other case')}"] if others else []
            place = None if at is None else (checkout.path(at[0]), at[1])
            texts = [*_texts(first, at), *more]
            yield _Mark(status, _title(first, report.table), texts, place, first)


def _notes(section: Section) -> list[Note]:
    return [one for one in section.parts if isinstance(one, Note) and one.media in COMMENT]


def _lines(section: Section) -> dict[Note, _Line]:
    """Return the line at which each note stands that names one.

    A line that a sentence names is the cause of a change: a change at no such line stands at the
    first of them. No line is the cause of a failure, whose output is shown.
    """
    notes = _notes(section)
    if any(note.kind == "output" for note in notes):
        return {}
    own = {note: (note.source.file, note.source.line) for note in notes if note.source is not None}
    causes = [line for note, line in own.items() if note.kind == "sentence"]
    return {note: line if not causes or line in causes else causes[0] for note, line in own.items()}


def _texts(section: Section, line: _Line | None) -> list[str]:
    """Return the notes of a section at the line, and its first ones that are at none."""
    lines = _lines(section)
    notes = [note for note in _notes(section) if lines.get(note, line) == line]
    notes.sort(key=lambda note: note not in lines)
    return [note.text[:_MOST_TEXT] for note in notes[:_MOST_NOTES]]


def _title(section: Section, table: Table) -> str:
    """Return the heading, with how much slower its first row in the table is, if it is."""
    names = shown_names(table)
    named = (row for row in table.rows if section.title in (row[0].text, names[row[0].text]))
    row = next(named, ())
    cells = (cell for column, cell in zip(table.columns, row, strict=False) if column.key == _RATIO)
    ratio = next((cell.value for cell in cells if isinstance(cell.value, float)), 1.0)
    return f"{section.heading} ({percent_change(ratio)})" if ratio > 1 else section.heading


# GitHub's workflow commands: ``::error title=…::message`` marks a job, and the summary of a job.
#
# https://docs.github.com/actions/reference/workflow-commands-for-github-actions


_MOST = 10  # GitHub shows at most ten of a level in a step


def tell_github(
    report: Report | None,
    markdown: str,
    environ: Mapping[str, str],
    checkout: Checkout = CHECKOUT,
) -> tuple[list[str], list[str]]:
    """Append to the summary of a job, and return its annotations, and what failed.

    Neither is done where no job of GitHub runs.
    """
    lines, errors = [], []
    if report is not None and environ.get("GITHUB_ACTIONS") == "true":
        lines = github_lines(report, checkout)
    if path := environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with Path(path).open("a", encoding="utf-8", errors="replace") as file:
                file.write(markdown)
        except OSError as error:
            errors = [f"--ddp-report: GITHUB_STEP_SUMMARY: {error.strerror}"]
    return lines, errors


def github_lines(report: Report, checkout: Checkout) -> list[str]:
    """Return a command for each mark: errors, then warnings, as many as GitHub shows."""
    marks = list(_marks(report, checkout))
    of_levels = ([mark for mark in marks if mark.status is status] for status in _LEVELS)
    return [_command(mark) for of_level in of_levels for mark in of_level[:_MOST]]


def _command(mark: _Mark) -> str:
    place = {} if mark.line is None else {"file": mark.line[0], "line": str(mark.line[1])}
    properties = {**place, "title": mark.title}
    named = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    message = _message("\n".join(mark.texts))
    return f"::{_LEVELS[mark.status][0]} {named}::{message}"


def _message(text: str) -> str:
    return visible(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


# GitLab's report of code quality, which a merge request shows.
#
# https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format


_NOWHERE: _Line = ("ddp-perf", 1)  # GitLab refuses a finding without a line


def gitlab_json(report: Report, checkout: Checkout = CHECKOUT) -> str:
    """Return a finding for each mark. Its fingerprint has no figure: runs are compared by it."""
    findings = [_finding(report, mark) for mark in _marks(report, checkout)]
    return json.dumps(findings, indent=1, ensure_ascii=False) + "\n"


def _finding(report: Report, mark: _Mark) -> dict[str, Any]:
    path, line = mark.line or _NOWHERE
    what = mark.section.title if mark.line is None else f"{path}:{line}"
    same = "\n".join([report.title, mark.status.value, what])
    return {
        "description": "; ".join([mark.title, *mark.texts]),
        "check_name": f"ddp-perf {mark.section.verdict}",
        "fingerprint": hashlib.sha256(same.encode("utf-8", "replace")).hexdigest(),
        "severity": _LEVELS[mark.status][1],
        "location": {"path": path, "lines": {"begin": line}},
    }
