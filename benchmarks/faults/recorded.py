"""The rows of the matrix that were recorded last, and their page."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from tests.faults.matrix import Row

PARTS = {
    "ranks": "A rank fails",
    "ends": "The driver or the server ends",
    "families": "The same, with real ranks",
    "storage": "The storage fails",
    "inputs": "A file says nonsense",
    "outsiders": "Somebody wants in",
    "endurance": "The suite runs for long",
}
_LONGEST = 30  # characters of a message
# Of a message: its launch and rank, or its file.
_PREFIX = re.compile(
    r"^(\S+: launch \d+: )?(rank \d|DIRECTORY/\S+|suite\.yaml|URL|ddp(-perf)?): |^\S+: launch \d+: "
)
RECORDED = Path(__file__).parents[1] / "data/faults.json"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one part, and when they were recorded."""

    date: str  # ISO 8601
    commit: str
    rows: tuple[Row, ...]


Recorded: TypeAlias = dict[str, Part]


def read_recorded() -> Recorded:
    return msgspec.json.decode(RECORDED.read_bytes(), type=Recorded)


def fault_rows() -> Iterator[str]:
    """Yield the lines of the page: a heading and a table for each part that was recorded.

    Where a fault was tried, and what is kept, stands once if it is that of the row above.
    """
    for name, part in read_recorded().items():
        yield from ("", f"## {PARTS[name]}", "", _summary(part), "")
        yield from ("|fault|you see|where|kept|", "|---|---|---|---|")
        above, widest = set[str](), list[str]()
        for row in part.rows:
            places = _places(row.where)
            where = "; ".join(_but(each, widest) for each in places if _joined(each) not in above)
            kept = "" if row.kept in above else row.kept
            yield f"|{row.fault}|{_quoted(row.seen)}|{where}|{kept}|"
            above = {*map(_joined, places), row.kept}
            widest = max(widest, *places, key=len)


def _summary(part: Part) -> str:
    rows = part.rows
    slowest = max((row.slowest_s for row in rows if row.slowest_s is not None), default=None)
    noticed = "" if slowest is None else f", noticed within {slowest:.1f} s"
    return (
        f"{part.date}, {part.commit}: tried {sum(row.tried for row in rows):,}, survived"
        f" {sum(row.survived for row in rows):,}, lost {sum(row.lost for row in rows)}, left over"
        f" {sum(row.leaked for row in rows)}{noticed}."
    )


def _places(where: tuple[str, ...]) -> list[list[str]]:
    """Return the places of all trials: their parts by position, if all have as many."""
    split = [place.split(", ") for place in where]
    if len({len(parts) for parts in split}) > 1:
        return [[place] for place in where]
    return [[*dict.fromkeys(parts)] for parts in zip(*split, strict=True)]


def _joined(places: list[str]) -> str:
    return ", ".join(places)


def _but(places: list[str], all_places: list[str]) -> str:
    """Return the places, or those of all that are not among them if these are fewer."""
    if len(places) > 2 and places == all_places:
        return "everywhere"
    lacking = [place for place in all_places if place not in places]
    if set(places) <= set(all_places) and 0 < len(lacking) < len(places):
        return f"all but {_joined(lacking)}"
    return _joined(places)


def _quoted(text: str) -> str:
    """Return the beginning of a message as code, without the launch or the file that it is of."""
    if not text:
        return "the signal"
    plain = _PREFIX.sub("", text).replace("|", "\\|").replace("`", "'")
    return f"`{textwrap.shorten(plain, _LONGEST, placeholder=' …')}`"
