"""A report: what a person reads of a result, stated once for every medium."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import Site
from ddp_perf.render.units import counted, short_names

if TYPE_CHECKING:
    from ddp_perf.render.chart import Chart

# What shows a part: the terminal, a comment and the page; the wide ones of them; or the page alone.
Media = Literal["all", "wide", "page"]
TERMINAL: tuple[Media, ...] = ("all",)
COMMENT: tuple[Media, ...] = ("all", "wide")
PAGE: tuple[Media, ...] = ("all", "wide", "page")


class Status(str, enum.Enum):
    """The status of a case, or of a session. The worst comes first."""

    RED = "RED"
    UNDECIDED = "UNDECIDED"
    GREEN = "GREEN"
    UNTESTED = "UNTESTED"  # of a case: no test asserts its verdict, which does not count

    @classmethod
    def of(cls, outcome: Outcome) -> Status:
        """Return the status of a verdict by itself, whatever was stored or acknowledged."""
        if outcome.is_red:
            return cls.RED
        return cls.GREEN if outcome.is_good else cls.UNDECIDED


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """A command for a shell where the session was started, and what it is for."""

    why: str  # a sentence without a full stop
    command: str

    def __str__(self) -> str:
        return f"{self.why}\nnext: {self.command}"


SOFT_HYPHEN = "\u00ad"  # in a title: where a narrow column may break it


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table: words, or figures that are aligned and can be sorted.

    ``key`` is the name of the figures in CSV and JSON, in SI units; empty: they are not there.
    """

    title: str
    key: str = ""
    meaning: str = ""
    words: bool = False
    media: Media = "all"
    filtered: bool = False  # on a page, a reader chooses among its words
    cut: bool = False  # names in the first column that a terminal cuts to the room that is left


CASE = Column(
    title="case",
    key="case",
    meaning="workload, technique, precision, ranks (ws), and samples of a rank (b) or of all (g)",
    words=True,
)


def words(*titles: str) -> tuple[Column, ...]:
    """Return columns of words."""
    return tuple(Column(title=title, words=True) for title in titles)


def figures(*titles: str) -> tuple[Column, ...]:
    """Return columns of figures."""
    return tuple(Column(title=title) for title in titles)


class Cell(NamedTuple):
    """A cell, and what sorts it. A cell without a figure comes last."""

    text: str
    value: float | str | None = None
    status: Status | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table. Neighbours with one first cell belong together: the first has their status.

    ``of_cases``: the first cells are ids of cases, which narrow media shorten to what differs.
    """

    label: str = ""
    of_cases: bool = False
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    media: Media = "all"

    @classmethod
    def of_texts(cls, columns: tuple[Column, ...], rows: Iterable[Iterable[str]]) -> Table:
        """Return a table for a terminal, whose cells nothing sorts."""
        return cls(columns=columns, rows=tuple(tuple(map(Cell, row)) for row in rows))

    def of_columns(self, places: Sequence[int]) -> Table:
        """Return the table with these of its columns."""
        rows = tuple(tuple(row[at] for at in places) for row in self.rows)
        columns = tuple(self.columns[at] for at in places)
        return msgspec.structs.replace(self, columns=columns, rows=rows)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, a change of which a narrow medium shows the first ones, or what was printed."""

    text: str
    kind: Literal["sentence", "change", "output"] = "sentence"
    source: Site | None = None  # the line of code that it is about: quoted, and annotated
    media: Media = "all"


def notes(texts: Iterable[str], *, media: Media = "all") -> tuple[Note, ...]:
    """Return a note for each sentence."""
    return tuple(Note(text=text, media=media) for text in texts)


class Plot(NamedTuple):
    """Charts for a page. They are made when it is written: no other medium needs them."""

    charts: Callable[[], Iterable[Chart]]


Part = Note | Table | Plot


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a report under its own title: a case, or what is about all of them."""

    title: str
    parts: tuple[Part, ...]
    verdict: str = ""
    status: Status | None = None
    opened: bool = False  # on a page, whose reader opens the others
    sections: tuple[Section, ...] = ()  # on a page
    media: Media = "all"

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.verdict}" if self.verdict else self.title


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report that a comment shows before all else, which it folds."""

    verdict: str  # in a word
    worst: str  # the worst case with its size
    causes: tuple[Note, ...] = ()
    case: str = ""  # that the causes are of, unless each names its own
    picture: str = ""  # in characters, on lines of at most 72


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A report, as it is read from its beginning: the verdict, the cases, then all else."""

    title: str
    verdict: str  # in a word
    status: Status
    headline: str
    summary: Summary | None = None
    about: tuple[Note, ...] = ()  # what was measured
    ended: str | None = None  # why it is not whole
    table: Table
    notes: tuple[Note, ...] = ()  # below the table
    sections: tuple[Section, ...] = ()
    certainty: str | None = None
    next: NextStep | None = None
    legend: str = ""  # of a page
    page: str = "the whole result"  # the file that has everything, if there is one
    option: str = "--report DIR"  # that writes or prints it
    data: str = ""  # the file for programs, if there is one


def limited(
    parts: Sequence[Part], most: int, page: str, media: Sequence[Media]
) -> list[Note | Table]:
    """Return what a medium without plots shows: the first ``most`` changes, and all else."""
    shown: list[Note | Table] = [
        part for part in parts if not isinstance(part, Plot) and part.media in media
    ]
    changes = [
        at for at, part in enumerate(shown) if isinstance(part, Note) and part.kind == "change"
    ]
    hidden = changes[most:]
    if not hidden:
        return shown
    place = hidden[0]
    more = Note(text=f"and {counted(len(hidden), 'more change')}: see {page}")
    shown[place : place + len(hidden)] = [more]
    return shown


def shown_names(table: Table) -> dict[str, str]:
    """Return the first cells, ids of cases without the parts that all of them share."""
    texts = [row[0].text for row in table.rows]
    return short_names(texts) if table.of_cases else {text: text for text in texts}
