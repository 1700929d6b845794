"""Plain text of a limited width: tables without colour or frame, short names, paragraphs."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence

import rich.box
import rich.console
import rich.table

NARROWEST = 80  # columns: every terminal has them


def plain_table() -> rich.table.Table:
    """Return an empty table with a rule under its headings, and no other line."""
    return rich.table.Table(
        box=rich.box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="",
    )


def rendered(table: rich.table.Table, width: int) -> list[str]:
    """Return the lines of a table, none wider than ``width``."""
    file = io.StringIO()
    console = rich.console.Console(
        file=file, width=width, color_system=None, markup=False, highlight=False
    )
    console.print(table)
    return [line.rstrip() for line in file.getvalue().rstrip().splitlines()]


def wrapped(paragraphs: Sequence[str], width: int) -> list[str]:
    """Return the lines of the paragraphs. Paths and ids are never broken, so one can copy them."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [line for paragraph in paragraphs for line in wrapper.wrap(paragraph)]


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Return, by id, a name that fits a narrow column: the id without the parts that all share.

    The ids keep their full names if there is only one, or if short ones are empty or not unique.
    """
    parts = {case_id: case_id.split("-") for case_id in ids}
    shared = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    names = {
        case_id: "-".join(part for part in row if part not in shared)
        for case_id, row in parts.items()
    }
    unique = len(set(names.values())) == len(names)
    return names if unique and all(names.values()) else {case_id: case_id for case_id in parts}
