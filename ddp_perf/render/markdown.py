"""A report as Markdown: a comment of a pull request, or the summary of a job."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence

from ddp_perf.render.model import (
    COMMENT,
    SOFT_HYPHEN,
    Cell,
    NextStep,
    Note,
    Report,
    Section,
    Status,
    Table,
    limited,
)
from ddp_perf.render.units import counted

SIGNS = {Status.RED: "❌", Status.UNDECIDED: "❔", Status.GREEN: "✅"}
MOST = 60_000  # characters: GitHub refuses a comment of more than 65,536
_MOST_OF_TABLE = 15_000
_MOST_NOTES = 40  # of a list
_MOST_PARTS = 50  # of a section
_MOST_CHANGES = 10  # of a case
_MOST_COMMAND = 4_000  # characters
_MOST_OUTPUT = 3_000  # characters, from the end
_MOST_LINE = 400  # characters: a label or a reason is shorter
_MARKUP = re.compile(r"([\\`*_\[\]|~])")  # characters with a meaning in the middle of a line


def report_markdown(report: Report, *, marker: str | None = None) -> str:
    """Return the report, the most important first. What does not fit a comment is left out.

    ``marker`` is the first line, by which a job finds its own comment.
    """
    blocks = [_head(report), _list(report.notes, report), _certainty(report)]
    ordered = sorted(report.sections, key=lambda section: _urgency(section.status))
    blocks += [_section(one, report) for one in ordered if one.media in COMMENT]
    lines = [] if marker is None else [marker]
    texts = _fitting([block for block in blocks if block], report)
    return "\n".join([*lines, "\n\n".join(texts)]) + "\n"


def markdown_escaped(text: str) -> str:
    """Return the text in one line, with all characters escaped that Markdown or HTML interprets."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _fitting(blocks: Sequence[str], report: Report) -> Iterator[str]:
    """Yield the blocks that fit, whole: half a fold would hide what comes after it."""
    cut = f"… the rest did not fit: see {report.page}"
    left = MOST - len(cut) - 5
    for block in blocks:
        left -= len(block) + 2
        if left < 0:
            yield cut
            return
        yield block


def _head(report: Report) -> str:
    title = f"## {SIGNS[report.status]} {_line(f'{report.verdict}: {report.title}')}"
    lines = [title, "", _line(report.headline)]
    if about := _list(report.about, report):
        lines += ["", about]
    if report.ended is not None:
        lines += ["", f"**{_line(report.ended[:1].upper() + report.ended[1:])}**"]
    if report.table.rows:
        lines += ["", *_table(report.table, report.page)]
    return "\n".join([*lines, *_next(report.next, report.page)])


def _certainty(report: Report) -> str:
    return "" if report.certainty is None else _line(report.certainty)


def _next(step: NextStep | None, page: str) -> list[str]:
    """Return the next command, unless it is too long: half a command is a wrong one."""
    if step is None:
        return []
    long = len(step.command) > _MOST_COMMAND
    command = f"The command is in {page}." if long else f"<pre>{_verbatim(step.command)}</pre>"
    return ["", f"Next: {_line(step.why)}", "", command]


def _table(table: Table, page: str) -> list[str]:
    """Return the rows, those of the worst status first, as many as fit."""
    shown = [at for at, column in enumerate(table.columns) if column.media in COMMENT]
    columns = [table.columns[at] for at in shown]
    titles = [column.title.replace(SOFT_HYPHEN, "") for column in columns]
    lines = [f"| {' | '.join(titles)} |"]
    lines.append("".join("|---" if column.words else "|--:" for column in columns) + "|")
    groups = [list(rows) for _, rows in itertools.groupby(table.rows, key=lambda row: row[0])]
    groups.sort(key=lambda rows: min(_urgency(_status(row)) for row in rows))
    size = 0
    for place, rows in enumerate(groups):
        texts = [[_marked(row[at]) for at in shown] for row in rows]
        for repeated in texts[1:]:
            repeated[0] = ""
        of_group = [f"| {' | '.join(map(_line, row))} |" for row in texts]
        size += sum(map(len, of_group))
        if size > _MOST_OF_TABLE:
            return [*lines, "", f"… and {counted(len(groups) - place, 'more case')}: see {page}"]
        lines += of_group
    return lines


def _marked(cell: Cell) -> str:
    return cell.text if cell.status not in SIGNS else f"{SIGNS[cell.status]} {cell.text}"


def _status(row: Sequence[Cell]) -> Status | None:
    return next((cell.status for cell in row if cell.status is not None), None)


def _urgency(status: Status | None) -> int:
    return len(Status) if status is None else list(Status).index(status)


def _list(notes: Sequence[Note], report: Report) -> str:
    texts = [note.text for note in notes if note.media in COMMENT]
    lines = [f"- {_line(text)}" for text in texts[:_MOST_NOTES]]
    if more := len(texts) - len(lines):
        lines.append(f"- and {more} more: see {report.page}")
    return "\n".join(lines)


def _section(section: Section, report: Report) -> str:
    """Return a section: a red one as it is, any other in a fold."""
    lines = []
    parts = limited(section.parts, _MOST_CHANGES, report.page, COMMENT)
    for part in parts[:_MOST_PARTS]:
        if isinstance(part, Table):
            lines += ["", *_table(part, report.page), ""]
        elif part.kind == "output":
            lines += ["", f"<pre>{_verbatim(_ends(part.text))}</pre>", ""]
        else:
            lines.append(f"- {_line(part.text)}")
    if more := len(parts[_MOST_PARTS:]):
        lines.append(f"- and {more} more: see {report.page}")
    text = "\n".join(lines)
    if section.status is Status.RED:
        return f"**{_line(section.heading)}**\n\n{text}"
    return f"<details><summary>{_verbatim(section.heading)}</summary>\n\n{text}\n\n</details>"


def _ends(text: str) -> str:
    """Return what was printed: its first line, and as much of its end as there is room for."""
    if len(text) <= _MOST_OUTPUT:
        return text
    return f"{text.partition(chr(10))[0][:_MOST_LINE]}\n…\n{text[-_MOST_OUTPUT:]}"


def _line(text: str) -> str:
    """Return a text in one line of limited length, with its markup escaped."""
    return markdown_escaped(text if len(text) <= _MOST_LINE else f"{text[:_MOST_LINE]}…")


def _verbatim(text: str) -> str:
    """Return a text for an HTML element, in which Markdown is not interpreted."""
    return html.escape(text, quote=False)
