"""The terminal's tables of what each technique gains."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import counted
from ddp_perf.report.gains import HEADINGS, MEANING, TITLE, compared_by, gain_rows
from ddp_perf.session.gains import GainTable, gains_of
from ddp_perf.session.result import SuiteResult

_LEFT_OUT = HEADINGS.index("peak MB")  # 80 columns are too few for it


def gain_lines(result: SuiteResult, width: int) -> list[str]:
    """Return the tables of the most ranks, or no line if the suite has no technique."""
    tables = gains_of(result)
    if not tables:
        return []
    width, most = max(width, NARROWEST), max(table.ranks for table in tables)
    names = short_names(result.measurements)
    shown = [table for table in tables if table.ranks == most]
    lines = [""]
    for table in shown:
        heading = f"{TITLE}, against {names[table.base]}, {compared_by(table)}:"
        lines += [*wrapped([heading], width), *_table(table, width), ""]
    notes = [MEANING]
    if more := len(tables) - len(shown):
        notes.append(f"{counted(more, 'more table')}, of fewer ranks: see --ddp-report")
    return [*lines, *wrapped(notes, width)]


def _table(table: GainTable, width: int) -> list[str]:
    text = plain_table()
    name, *figures = _narrow(HEADINGS)
    text.add_column(name, overflow="fold")
    for heading in figures:
        text.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in gain_rows(table):
        text.add_row(*_narrow(row))
    return rendered(text, width)


def _narrow(cells: Sequence[str]) -> list[str]:
    return [*cells[:_LEFT_OUT], *cells[_LEFT_OUT + 1 :]]
