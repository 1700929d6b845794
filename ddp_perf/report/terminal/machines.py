"""Two machines side by side, as text and as JSON: tables without a verdict."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import rich.table

from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import ABSENT, short_number, to_json
from ddp_perf.report.terminal.comparison import describe_session, injections_of
from ddp_perf.scaling.machine_links import LinkPair
from ddp_perf.scaling.machines import CasePair, FigureName, MachinesSideBySide, PublishedEfficiency
from ddp_perf.session.conclusion import Conclusion
from ddp_perf.stats.interval import CONFIDENCE, Estimate

MACHINES_SCHEMA_VERSION = 1
_TITLES: dict[FigureName, tuple[str, float]] = {
    "step_s": ("step, ms", 1e3),
    "throughput": ("{unit} /s", 1),
    "efficiency": ("efficiency, %", 100),
    "exposed_s": ("exposed comm., ms", 1e3),
}


class MachinesFile(msgspec.Struct, frozen=True, kw_only=True):
    """Two machines side by side, without the content of the files."""

    schema_version: int = MACHINES_SCHEMA_VERSION
    conclusion: Conclusion = Conclusion.UNDECIDED  # of two machines there is no verdict
    old: tuple[str, ...]  # files, oldest session first
    new: tuple[str, ...]
    incomplete: tuple[str, ...]  # files that were written while their session was running
    injected: dict[str, list[str]]  # by file
    differences: tuple[str, ...]
    confidence: float = CONFIDENCE  # of the figures of cases
    cases: tuple[CasePair, ...]
    links: tuple[LinkPair, ...]
    left_out: dict[str, str]


def machines_json(found: MachinesSideBySide) -> str:
    """Return the figures of both machines."""
    sessions = (*found.old.sessions, *found.new.sessions)
    file = MachinesFile(
        old=tuple(session.name for session in found.old.sessions),
        new=tuple(session.name for session in found.new.sessions),
        incomplete=tuple(session.name for session in sessions if not session.complete),
        injected={session.name: injections_of(session) for session in sessions},
        differences=found.differences,
        cases=found.cases,
        links=found.links,
        left_out=found.left_out,
    )
    return to_json(file)


def machines_text(found: MachinesSideBySide, width: int) -> str:
    """Return the tables of cases and links, what is published, and why there is no verdict."""
    width = max(width, NARROWEST)
    lines = [
        describe_session(label, session)
        for label, side in (("A", found.old), ("B", found.new))
        for session in side.sessions
    ]
    lines += wrapped([f"two machines: {', '.join(found.differences)}"], width)
    if found.cases:
        lines += ["", *rendered(_cases_table(found), width)]
    if found.links:
        lines += ["", *rendered(_links_table(found), width)]
    notes = [*_notes(found), *dict.fromkeys(_published_lines(found))]
    lines += ["", *wrapped(notes, width)]
    return "\n".join([*lines, "B against A: NO VERDICT: two machines"])


def _cases_table(found: MachinesSideBySide) -> rich.table.Table:
    table = plain_table()
    table.add_column("case", overflow="fold")
    table.add_column("figure", no_wrap=True)
    for heading in ("A", "B", "B ÷ A"):
        table.add_column(heading, justify="right")
    names = short_names(pair.case_id for pair in found.cases)
    for pair in found.cases:
        name = names[pair.case_id]
        for figure, (title, factor) in _TITLES.items():
            if (values := pair.figures.get(figure)) is None:
                continue
            table.add_row(
                name,
                title.format(unit=pair.unit),
                _cell(values.old, factor),
                _cell(values.new, factor),
                _cell(values.ratio, 1),
            )
            name = ""
    return table


def _links_table(found: MachinesSideBySide) -> rich.table.Table:
    table = plain_table()
    table.add_column("link (ring model,\nfitted)", overflow="fold")
    table.add_column("figure", no_wrap=True)
    for heading in ("A", "B"):
        table.add_column(heading, justify="right")
    for link in found.links:
        name = f"{link.name} ({link.confidence:.0%})"
        table.add_row(
            name, "latency, µs", _cell(link.latency_s.old, 1e6), _cell(link.latency_s.new, 1e6)
        )
        rate = link.bytes_per_s
        table.add_row("", "GB/s", _cell(rate.old, 1e-9), _cell(rate.new, 1e-9))
    return table


def _cell(estimate: Estimate | None, factor: float) -> str:
    """Write a figure with its interval in parentheses."""
    if estimate is None:
        return ABSENT
    text = short_number(factor * estimate.value)
    if estimate.low is None or estimate.high is None:
        return text
    low, high = (short_number(factor * end) for end in (estimate.low, estimate.high))
    return f"{text} ({low}–{high})"


def _notes(found: MachinesSideBySide) -> Iterator[str]:
    sides = (found.old, found.new)
    for session in (session for side in sides for session in side.sessions):
        if not session.complete:
            yield f"{session.name} is incomplete: its session was still running"
    for pair in found.cases:
        for why in pair.disturbed:
            yield f"DISTURBED: {pair.case_id}: {why}"
    for case_id, why in found.left_out.items():
        yield f"NOT COMPARED: {case_id}: {why}"
    unit = "launches" if any(len(side.sessions) == 1 for side in sides) else "sessions"
    beyond = "; how sessions differ is not in them" if unit == "launches" else ""
    yield f"means with {CONFIDENCE:.0%} intervals of the {unit}{beyond}"


def _published_lines(found: MachinesSideBySide) -> Iterator[str]:
    for pair in found.cases:
        for one in pair.published:
            yield _published_line(pair, one)


def _published_line(pair: CasePair, one: PublishedEfficiency) -> str:
    figures = " to ".join(f"{efficiency:.0%}" for efficiency in one.efficiency)
    measured = pair.figures.get("efficiency")
    here = None if measured is None else measured.old if one.side == "A" else measured.new
    kind = "expected" if one.modelled else "published"
    return (
        f"{kind} for {one.side}, {pair.case_id}: efficiency {figures}; here {_cell(here, 100)} %"
        f" ({one.hardware}; {one.document}: {one.where})"
    )
