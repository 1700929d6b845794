"""Plain text of a limited width: tables, paragraphs, and one live line on a terminal."""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TextIO

import rich.box
import rich.console
import rich.live
import rich.progress_bar
import rich.table
import rich.text

# Plain text of a limited width: tables without colour or frame, paragraphs.


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


# One live line on a terminal: a bar and a text.


_BAR_WIDTH = 20


class LiveBar:
    """A line that each call of `show` draws again, and that disappears at the end.

    No thread draws it: while a launch runs, that would take time from its ranks.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = rich.console.Console(file=stream)
        self._live = rich.live.Live(console=self._console, auto_refresh=False, transient=True)
        # rich takes any stream for a terminal if FORCE_COLOR is set, as some CI systems do.
        self.is_possible = stream.isatty() and self._console.is_interactive

    def __enter__(self) -> LiveBar:
        if self.is_possible:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, done: float, total: float, text: str) -> None:
        """Draw the line. A narrow terminal shows the beginning of the text."""
        if not self.is_possible:
            return
        encoding = self._console.encoding  # may lack a character of a case's name
        shown = text.encode(encoding, errors="replace").decode(encoding)
        line = rich.table.Table.grid(padding=(0, 1), expand=True)
        line.add_column(width=_BAR_WIDTH)
        line.add_column(ratio=1, no_wrap=True, overflow="crop")
        line.add_row(
            rich.progress_bar.ProgressBar(total, done, width=_BAR_WIDTH), rich.text.Text(shown)
        )
        self._live.update(line, refresh=True)

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the line while others write to the terminal."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start(refresh=True)
