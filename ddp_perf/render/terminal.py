"""A report as text for a terminal without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ddp_perf.render.model import (
    PAGE,
    SOFT_HYPHEN,
    TERMINAL,
    Media,
    Note,
    Part,
    Plot,
    Report,
    Section,
    Table,
    limited,
    shown_names,
)
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, wrapped
from ddp_perf.render.units import counted
from ddp_perf.render.visible import printable

_MOST_CHANGES = 3  # of a case
_MOST_OUTPUT = 12  # lines, from the end
_GAP = 2  # columns between two columns
_LEAST_HEADING = 6  # columns: so short a heading is not broken


Block = str | Part | Section | Report


def report_text(report: Report, width: int, *, whole: bool = False) -> str:
    """Return what was measured, the table, the cases that need it, and the next command.

    ``whole``: with what only a page shows, but its columns and plots. No line is wider than
    ``width``, or 80 columns, but commands and what was printed.
    """
    blocks: list[Block | None] = [*report.about, report.headline, report.ended]
    blocks += [report.table] if report.table.rows else [""]
    blocks += [*report.notes, *report.sections]
    blocks += ["", f"{report.title}: {report.verdict}", report.certainty]
    if report.next is not None:
        blocks.append(report.next.why)
    media, page = PAGE if whole else TERMINAL, f"{report.page} ({report.option})"
    shown = (block for block in blocks if block is not None)
    text = _text(shown, max(width, NARROWEST), media, page)
    return printable(text if report.next is None else f"{text}\nnext: {report.next.command}")


def text_of(blocks: Iterable[Block], width: int) -> str:
    """Return the blocks, each after a blank line; sentences follow one another without one.

    An empty sentence is a blank line.
    """
    return printable(_text(blocks, max(width, NARROWEST), PAGE, "the report"))


def _text(blocks: Iterable[Block], width: int, media: Sequence[Media], page: str) -> str:
    found: list[list[str]] = [[]]
    for block in blocks:
        if block == "":
            found.append([])
        elif isinstance(block, str):
            found[-1] += wrapped([block], width)
        elif isinstance(block, Note):
            if block.media in media:
                found[-1] += _note(block, width, media, page)
        else:
            found += [_block(block, width, media, page), []]
    return "\n\n".join("\n".join(lines) for lines in found if lines)


def _block(
    block: Table | Plot | Section | Report, width: int, media: Sequence[Media], page: str
) -> list[str]:
    match block:
        case Table():
            return table_lines(block, width)
        case Section() if block.media in media:
            most = len(block.parts) if media is PAGE else _MOST_CHANGES
            parts = limited(block.parts, most, page, media)
            body = _text(parts, width - 2, media, page)
            return [block.heading, *textwrap.indent(body, "  ").splitlines()] if body else []
        case Report():
            return report_text(block, width).splitlines()
    return []


def _note(note: Note, width: int, media: Sequence[Media], page: str) -> list[str]:
    """Return a sentence, or what was printed: its first line and the last ones, or the whole."""
    if note.kind != "output":
        return wrapped([note.text], width)
    first, *rest = note.text.splitlines() or [""]
    left_out = len(rest) - _MOST_OUTPUT
    if left_out <= 0 or media is PAGE:
        return [first, *rest]
    cut = f"… {counted(left_out, 'line')} left out: see {page}"
    return [first, cut, *rest[-_MOST_OUTPUT:]]


def table_lines(table: Table, width: int) -> list[str]:
    """Return the lines of a table.

    A first cell that is repeated is shown once. One that leaves the others no room has a line of
    its own above them. If that is not enough, the columns are in two tables.
    """
    shown = [at for at, one in enumerate(table.columns) if one.media in TERMINAL]
    names = shown_names(table)
    firsts = [row[shown[0]] for row in table.rows]
    begins = [at == 0 or firsts[at - 1] != one for at, one in enumerate(firsts)]
    columns = [[row[at].text for row in table.rows] for at in shown]
    columns[0] = [
        names[one.text] if begin else "" for one, begin in zip(firsts, begins, strict=True)
    ]
    is_cut = table.columns[shown[0]].cut
    words = [not is_cut, *(table.columns[at].words for at in shown[1:])]
    titles = [
        table.columns[at].title if at == shown[0] else _heading(table.columns[at].title, cells)
        for at, cells in zip(shown, columns, strict=True)
    ]
    if is_cut:
        room = width - sum(map(_least_width, titles[1:], columns[1:], words[1:]))
        columns[0] = [name if len(name) <= room else f"{name[: room - 1]}…" for name in columns[0]]
    spare = width + _GAP - sum(map(_least_width, titles, columns, words))
    if spare < 0:
        spare += _least_width(titles[0], columns[0], True) - _GAP
        if spare < 0 and len(shown) > 2:
            half = (len(shown) + 1) // 2
            halves = (shown[:half], [shown[0], *shown[half:]])
            return [line for half in halves for line in table_lines(table.of_columns(half), width)]
        titles[0], columns[0] = "", [""] * len(firsts)
    beside = any(columns[0])
    columns = _broken(columns, titles, words, max(0, spare))
    text = plain_table()
    for place, (title, is_words) in enumerate(zip(titles, words, strict=True)):
        left = is_words or place == 0
        text.add_column(title, justify="left" if left else "right", no_wrap=True)
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
