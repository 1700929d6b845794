"""``work.html``: what each counted case does more and less, at which line, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.render.tables import short_names
from ddp_perf.render.units import ABSENT, prefixed_number
from ddp_perf.report.html.page import environment
from ddp_perf.report.verdicts import Status
from ddp_perf.report.work_rows import MODELLED, StepFigures, WorkReport, WorkRow
from ddp_perf.work.cost import cost_text, signed_ms
from ddp_perf.work.text import MOST_LINES, bytes_text, place_text

# Headings of the figures of a step, with the fields that they show.
_NUMBERS = {
    "operations": "operations",
    "host reads": "host_reads",
    "collectives": "collectives",
    "allocations": "allocations",
}
_SIZES = {"moved": "bytes", "sent": "collective_bytes", "peak": "peak"}


def work_html(report: WorkReport) -> bytes:
    """Return the whole page in UTF-8."""
    suites: dict[str, list[WorkRow]] = {}
    for row in report.rows:
        suites.setdefault(row.suite, []).append(row)
    page = (
        environment()
        .get_template("work.html.j2")
        .render(
            report=report,
            Status=Status,
            suites={name: _named(rows) for name, rows in suites.items()},
            headings=(*_NUMBERS, "FLOPs", *_SIZES),
            figures=_figures,
            cost=cost_text,
            ms=signed_ms,
            place=place_text,
            most_lines=MOST_LINES,
            amount=amount_text,
            modelled=MODELLED if any(row.costs for row in report.rows) else "",
        )
    )
    return page.encode("utf-8", "replace")


def _named(rows: Sequence[WorkRow]) -> list[tuple[str, WorkRow]]:
    names = short_names(row.case for row in rows)
    return [(names[row.case], row) for row in rows]


def _figures(figures: StepFigures | None) -> list[tuple[float | None, str]]:
    """Return the figures of a step, each with its text; dashes if nothing is counted."""
    if figures is None:
        return [(None, ABSENT)] * (len(_NUMBERS) + 1 + len(_SIZES))
    numbers = [getattr(figures, field) for field in _NUMBERS.values()]
    sizes = [getattr(figures, field) for field in _SIZES.values()]
    return [
        *((number, f"{number:,}") for number in numbers),
        (figures.flops, prefixed_number(figures.flops)),
        *((size, bytes_text(size)) for size in sizes),
    ]


def amount_text(value: int, unit: str) -> str:
    """Write the number of a change, before or after it."""
    if unit == "bytes":
        return bytes_text(value)
    return prefixed_number(value) if unit == "FLOPs" else f"{value:,}"
