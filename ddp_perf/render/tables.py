"""Plain text that fits: tables without colour or frame, short names, and paragraphs."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

import rich.box
import rich.console
import rich.table

NARROWEST = 80  # columns: what every terminal has


def plain_table() -> rich.table.Table:
    """A rule under the headings, and no other line."""
    return rich.table.Table(
        box=rich.box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="",
    )


def rendered(table: rich.table.Table, width: int) -> list[str]:
    """The lines of a table, none wider than ``width``."""
    file = io.StringIO()
    console = rich.console.Console(
        file=file, width=width, color_system=None, markup=False, highlight=False
    )
    console.print(table)
    return [line.rstrip() for line in file.getvalue().rstrip().splitlines()]


def wrapped(paragraphs: Sequence[str], width: int) -> list[str]:
    """Paths and ids stay whole, so that they can be copied."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [line for paragraph in paragraphs for line in wrapper.wrap(paragraph)]


def short_names(ids: Sequence[str]) -> list[str]:
    """The ids without the parts that all of them share: they must fit a narrow column."""
    parts = [case_id.split("-") for case_id in ids]
    if len(ids) < 2 or len({len(row) for row in parts}) > 1:
        return list(ids)
    kept = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    return ["-".join(row[i] for i in kept) for row in parts]
