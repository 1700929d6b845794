"""A report as text for a terminal without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ddp_perf.render.model import (
    SOFT_HYPHEN,
    NextStep,
    Note,
    Report,
    Section,
    Table,
    limited,
    shown_names,
    shows,
)
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import counted

_MOST_CHANGES = 3  # of a case
_MOST_OUTPUT = 12  # lines, from the end
_GAP = 2  # columns between two columns
_LEAST_HEADING = 6  # columns: so short a heading is not broken


def report_text(report: Report, width: int) -> str:
    """Return what was measured, the table, the cases that need it, and the next command.

    No line is wider than ``width``, or 80 columns, but commands and what was printed.
    """
    width = max(width, NARROWEST)
    page = f"{report.page} ({report.option})"
    blocks = [
        wrapped([*_texts(report.about), report.headline, *filter(None, [report.ended])], width),
        table_lines(report.table, width) if report.table.rows else [],
        wrapped(_texts(report.notes), width),
        *(_section(one, page, width) for one in report.sections if one.media == "all"),
        wrapped([f"{report.title}: {report.verdict}", *filter(None, [report.certainty])], width)
        + _next(report.next, width),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _next(step: NextStep | None, width: int) -> list[str]:
    return [] if step is None else [*wrapped([step.why], width), f"next: {step.command}"]


def table_lines(table: Table, width: int) -> list[str]:
    """Return the lines of a table.

    A first cell that is repeated is shown once. One that leaves the others no room has a line of
    its own above them.
    """
    shown = [at for at, one in enumerate(table.columns) if shows(one.media, wide=False)]
    names = shown_names(table)
    firsts = [row[shown[0]] for row in table.rows]
    begins = [at == 0 or firsts[at - 1] != one for at, one in enumerate(firsts)]
    columns = [[row[at].text for row in table.rows] for at in shown]
    columns[0] = [
        names[one.text] if begin else "" for one, begin in zip(firsts, begins, strict=True)
    ]
    words = [True, *(table.columns[at].words for at in shown[1:])]
    titles = [
        table.columns[at].title if at == shown[0] else _heading(table.columns[at].title, cells)
        for at, cells in zip(shown, columns, strict=True)
    ]
    spare = width + _GAP - sum(map(_least_width, titles, columns, words))
    if spare < 0:
        spare += _least_width(titles[0], columns[0], True) - _GAP
        titles[0], columns[0] = "", [""] * len(firsts)
    beside = any(columns[0])
    columns = _broken(columns, titles, words, max(0, spare))
    text = plain_table()
    for title, is_words in zip(titles, words, strict=True):
        text.add_column(title, justify="left" if is_words else "right", no_wrap=True)
    for row in zip(*columns, strict=True):
        text.add_row(*row)
    lines = rendered(text, width)
    if beside:
        return lines
    above: list[str] = []
    for cells, one, begin in zip(zip(*columns, strict=True), firsts, begins, strict=True):
        above += [one.text if begin else "", *[""] * max(cell.count("\n") for cell in cells)]
    end = next(at for at, line in enumerate(lines) if line.startswith("─")) + 1
    body = zip(above, lines[end:], strict=True)
    return [*lines[:end], *(line for pair in body for line in pair if line)]


def _broken(
    columns: list[list[str]], titles: Sequence[str], words: Sequence[bool], spare: int
) -> list[list[str]]:
    """Return the cells in lines. Words get the room that is left, the longest column the last."""
    broken = list(columns)
    whole = [_least_width(*of, False) for of in zip(titles, columns, strict=True)]
    for at in sorted(range(len(columns)), key=whole.__getitem__):
        if words[at] and any(columns[at]):
            least = _least_width(titles[at], columns[at], True)
            more = min(spare, whole[at] - least)
            broken[at] = [_lines(cell, least + more - _GAP) for cell in columns[at]]
            spare -= _least_width(titles[at], "\n".join(broken[at]).splitlines(), False) - least
    return broken


def _lines(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


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


def _least_width(title: str, cells: Sequence[str], is_words: bool) -> int:
    """Return what a column needs, with the gap before it. Words may be on several lines."""
    parts = [part for text in cells for part in text.split()] if is_words else cells
    return _GAP + max(map(len, [*title.splitlines(), *parts]), default=0)


def _section(section: Section, page: str, width: int) -> list[str]:
    body: list[str] = []
    for part in limited(section.parts, _MOST_CHANGES, page, wide=False):
        if isinstance(part, Table):
            body += table_lines(part, width - 2)
        elif part.kind == "output":
            body += _shortened(part, page)
        else:
            body += wrapped([part.text], width - 2)
    return [section.heading, *textwrap.indent("\n".join(body), "  ").splitlines()]


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
