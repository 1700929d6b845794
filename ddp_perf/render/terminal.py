"""A report as text for a terminal without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import JustifyMethod

from ddp_perf.render.model import SOFT_HYPHEN, Note, Report, Section, Table, limited, shows
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import counted

_MOST_CHANGES = 3  # of a case
_MOST_OUTPUT = 12  # lines, from the end
_LEAST_HEADING = 6  # columns: so short a heading is not broken


def report_text(report: Report, width: int) -> str:
    """Return what was measured, the table, the cases that need it, and the next command.

    No line is wider than ``width``, or 80 columns, but commands and what was printed.
    """
    width = max(width, NARROWEST)
    lines = wrapped(_texts(report.about), width)
    lines += wrapped([report.headline, *filter(None, [report.ended])], width)
    if report.table is not None and report.table.rows:
        lines += ["", *table_lines(report.table, width), ""]
    lines += wrapped(_texts(report.notes), width)
    for section in report.sections:
        if section.media == "all":
            page = f"{report.page} ({report.option})"
            lines += ["", *_section(section, page, width)]
    lines += ["", *wrapped([f"{report.title}: {report.verdict}"], width)]
    lines += wrapped([*filter(None, [report.certainty])], width)
    if report.next is not None:
        lines += [*wrapped([report.next.why], width), f"next: {report.next.command}"]
    return "\n".join(lines)


def table_lines(table: Table, width: int) -> list[str]:
    """Return the lines of a table.

    A first cell that is repeated is shown once. One that leaves the others no room has a line of
    its own above them.
    """
    shown = [at for at, column in enumerate(table.columns) if shows(column.media, wide=False)]
    names = shown_names(table)
    cells = [[row[at].text for at in shown[1:]] for row in table.rows]
    titles = [_heading(table.columns[at].title, column) for at, column in _by_column(shown, cells)]
    words = [table.columns[at].words for at in shown[1:]]
    longest = max(map(len, names.values()), default=0)
    beside = longest <= width - _width(titles, cells, words)
    text = plain_table()
    text.add_column(table.columns[0].title if beside else "", no_wrap=True)
    tight = _width(titles, cells, [False] * len(words)) + longest > width
    for at, (title, is_words) in enumerate(zip(titles, words, strict=True)):
        aligned: JustifyMethod = "left" if is_words else "right"
        wraps = is_words and beside and tight
        most = max(map(len, " ".join(row[at] for row in cells).split())) if wraps else None
        text.add_column(title, justify=aligned, no_wrap=not wraps, max_width=most)
    above: list[str] = []
    for number, row in enumerate(table.rows):
        first = number == 0 or table.rows[number - 1][0] != row[0]
        text.add_row(names[row[0].text] if first and beside else "", *cells[number])
        above.append(row[0].text if first and not beside else "")
    lines = rendered(text, width)
    if beside:
        return lines
    end = next(at for at, line in enumerate(lines) if line.startswith("─")) + 1
    body = zip(above, lines[end:], strict=True)
    return [*lines[:end], *(line for pair in body for line in pair if line)]


def shown_names(table: Table) -> dict[str, str]:
    """Return the first cells, ids of cases without the parts that all of them share."""
    texts = [row[0].text for row in table.rows]
    return short_names(texts) if table.of_cases else {text: text for text in texts}


def _by_column(
    shown: Sequence[int], cells: Sequence[Sequence[str]]
) -> list[tuple[int, tuple[str, ...]]]:
    columns = list(zip(*cells, strict=True)) or [()] * (len(shown) - 1)
    return list(zip(shown[1:], columns, strict=True))


def _heading(title: str, cells: Sequence[str]) -> str:
    """Return the title in lines that are no wider than the cells, if its words allow that."""
    widest = max(map(len, cells), default=0)
    words = [part for word in title.split() for part in _parts(word, widest)]
    room = max(widest, _LEAST_HEADING, *map(len, words))
    return "\n".join(textwrap.wrap(" ".join(words), room, break_long_words=False))


def _parts(word: str, room: int) -> list[str]:
    """Return the word, or the parts at its soft hyphens if it is wider than its column."""
    whole = word.replace(SOFT_HYPHEN, "")
    if len(whole) <= room:
        return [whole]
    *parts, last = word.split(SOFT_HYPHEN)
    return [*(part if part.endswith("-") else f"{part}-" for part in parts), last]


def _width(titles: Sequence[str], cells: Sequence[Sequence[str]], words: Sequence[bool]) -> int:
    """Return the columns that all cells but the first need. Words may be on several lines."""
    needed = 0
    for at, title in enumerate(titles):
        texts = [row[at] for row in cells]
        parts = [part for text in texts for part in text.split()] if words[at] else texts
        needed += 2 + max(map(len, [*title.splitlines(), *parts]))
    return needed


def _section(section: Section, page: str, width: int) -> list[str]:
    body: list[str] = []
    for part in limited(section.parts, _MOST_CHANGES, page, wide=False):
        if isinstance(part, Table):
            body += table_lines(part, width - 2)
        elif part.kind == "output":
            body += _shortened(part, page)
        else:
            body += wrapped([part.text], width - 2)
    title = f"{section.title}: {section.verdict}" if section.verdict else section.title
    return [title, *textwrap.indent("\n".join(body), "  ").splitlines()]


def _shortened(note: Note, page: str) -> list[str]:
    """Return the first line of what was printed, and the last ones."""
    first, *rest = note.text.splitlines() or [""]
    left_out = len(rest) - _MOST_OUTPUT
    if left_out <= 0:
        return [first, *rest]
    cut = f"… {counted(left_out, 'line')} left out: see {page}"
    return [first, cut, *rest[-_MOST_OUTPUT:]]


def _texts(notes: Sequence[Note]) -> list[str]:
    return [note.text for note in notes if shows(note.media, wide=False)]
