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
    "storage": "The storage fails",
    "inputs": "A file says nonsense",
    "outsiders": "Somebody wants in",
    "endurance": "The suite runs for long",
}
_LONGEST = 38  # characters of a message
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
        above = set[str]()
        for row in part.rows:
            places = _places(row.where).split("; ")
            where = "; ".join(place for place in places if place not in above)
            kept = "" if row.kept in above else row.kept
            yield f"|{row.fault}|{_quoted(row.seen)}|{where}|{kept}|"
            above = {*places, row.kept}


def _summary(part: Part) -> str:
    rows = part.rows
    slowest = max((row.slowest_s for row in rows if row.slowest_s is not None), default=None)
    noticed = "" if slowest is None else f", noticed within {slowest:.1f} s"
    return (
        f"{part.date}, {part.commit}: tried {sum(row.tried for row in rows):,}, survived"
        f" {sum(row.survived for row in rows):,}, lost {sum(row.lost for row in rows)}, left over"
        f" {sum(row.leaked for row in rows)}{noticed}."
    )


def _places(where: tuple[str, ...]) -> str:
    """Return the places of all trials: their parts by position, if all have as many."""
    split = [place.split(", ") for place in where]
    if len({len(parts) for parts in split}) > 1:
        return "; ".join(where)
    return "; ".join(", ".join(dict.fromkeys(parts)) for parts in zip(*split, strict=True))


def _quoted(text: str) -> str:
    """Return the beginning of a message as code, without the launch that it is of."""
    if not text:
        return "the signal"
    plain = re.sub(r"^\S+: launch \d+: ", "", text).replace("|", "\\|").replace("`", "'")
    return f"`{textwrap.shorten(plain, _LONGEST, placeholder=' …')}`"
