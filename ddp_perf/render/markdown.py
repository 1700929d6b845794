"""A report as Markdown: a comment of a pull request, or the summary of a job."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence

from ddp_perf.render.checkout import CHECKOUT, Checkout
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
from ddp_perf.render.visible import visible

SIGNS = {Status.RED: "❌", Status.UNDECIDED: "❔", Status.GREEN: "✅"}
MOST = 60_000  # characters: GitHub refuses a comment of more than 65,536
_MOST_OF_TABLE = 15_000
_MOST_NOTES = 40  # of a list
_MOST_PARTS = 50  # of a section
_MOST_CHANGES = 10  # of a case
_MOST_COMMAND = 4_000  # characters
_MOST_OUTPUT = 3_000  # characters, from the end
_MOST_LINE = 400  # characters: a label or a reason is shorter
_QUICK_ACTION = re.compile(r"^([ \t]*)/", re.MULTILINE)
_MARKUP = re.compile(r"([\\`*_\[\]|~])")  # characters with a meaning in the middle of a line


def report_markdown(report: Report, checkout: Checkout = CHECKOUT) -> str:
    """Return the report, the most important first. What does not fit a comment is left out.

    A report with a summary shows that, and has all else in folds.
    """
    blocks = [_heading(report), _line(report.headline), *_body(report, checkout)]
    ordered = sorted(report.sections, key=lambda section: _urgency(section.status))
    blocks += [_section(one, report) for one in ordered if one.media in COMMENT]
    return "\n\n".join(_fitting([block for block in blocks if block], report)) + "\n"


def markdown_escaped(text: str) -> str:
    """Return the text in one line, with all characters escaped that Markdown or HTML interprets."""
    return _MARKUP.sub(r"\\\1", html.escape(visible(" ".join(text.split())), quote=False))


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


def _heading(report: Report) -> str:
    text = f"{report.verdict}: {report.title}"
    if report.summary is not None:
        text = f"{report.summary.verdict}: {report.summary.worst}"
    return f"## {SIGNS[report.status]} {_line(text)}"


def _body(report: Report, checkout: Checkout) -> Iterator[str]:
    """Yield what comes between the headline and the sections."""
    about, below = _list(report.about, report), _list(report.notes, report)
    table = "\n".join(_table(report.table, report.page)) if report.table.rows else ""
    certainty = "" if report.certainty is None else _line(report.certainty)
    ended = "" if report.ended is None else report.ended[:1].upper() + report.ended[1:]
    yielded = [ended and f"**{_line(ended)}**"]
    if report.summary is None:
        yield from (about, *yielded, table, _next(report.next, report.page), below, certainty)
        return
    yield "\n".join(f"- {_linked(note, checkout)}" for note in report.summary.causes)
    yield f"<pre>{_verbatim(report.summary.picture)}</pre>" if report.summary.picture else ""
    yield from (*yielded, _next(report.next, report.page))
    whole = "\n\n".join(filter(None, (about, table, below, certainty)))
    yield _fold(report.table.label, whole) if whole else ""


def _linked(note: Note, checkout: Checkout) -> str:
    """Return a note, in which the line of code that it is about has a link."""
    text, page = _line(note.text), note.source and checkout.page(note.source)
    if note.source is None or page is None:
        return text
    place = markdown_escaped(f"{note.source.file}:{note.source.line}")
    link = f"[{place}]({page})"
    return text.replace(place, link, 1) if place in text else f"{text} ({link})"


def _fold(title: str, text: str) -> str:
    return f"<details><summary>{_verbatim(title)}</summary>\n\n{text}\n\n</details>"


def _next(step: NextStep | None, page: str) -> str:
    """Return the next command, unless it is too long: half a command is a wrong one."""
    if step is None:
        return ""
    long = len(step.command) > _MOST_COMMAND
    command = f"The command is in {page}." if long else f"<pre>{_verbatim(step.command)}</pre>"
    return f"Next: {_line(step.why)}\n\n{command}"


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
    """Return a section: a red one as it is, any other in a fold; below a summary, each one."""
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
    if section.status is Status.RED and report.summary is None:
        return f"**{_line(section.heading)}**\n\n{text}"
    return _fold(section.heading, text)


def _ends(text: str) -> str:
    """Return what was printed: its first line, and as much of its end as there is room for."""
    if len(text) <= _MOST_OUTPUT:
        return text
    return f"{text.partition(chr(10))[0][:_MOST_LINE]}\n…\n{text[-_MOST_OUTPUT:]}"


def _line(text: str) -> str:
    """Return a text in one line of limited length, with its markup escaped."""
    return markdown_escaped(text if len(text) <= _MOST_LINE else f"{text[:_MOST_LINE]}…")


def _verbatim(text: str) -> str:
    """Return a text for an HTML element, in which Markdown is not interpreted.

    GitLab would obey a line that begins with a slash, as /close.
    """
    return _QUICK_ACTION.sub(r"\1&#47;", html.escape(visible(text), quote=False))
