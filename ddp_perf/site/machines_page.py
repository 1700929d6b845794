"""The page that compares machines: the cases that two or more of them measured."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.core.metric import STEP_TIME
from ddp_perf.history.text import figure_text
from ddp_perf.render.model import CASE, Cell, Column, Report, Status, Table, notes
from ddp_perf.render.units import ABSENT, counted
from ddp_perf.site.links import case_link
from ddp_perf.site.views import CaseView, SiteViews


def machines_page(views: SiteViews) -> Report:
    """Return the newest level of each case on each machine, and its ratio to the fastest."""
    machines = sorted({view.case.accelerator for view in views.cases})
    shared: dict[str, list[CaseView]] = {}
    for view in views.cases:
        shared.setdefault(view.case.case_id, []).append(view)
    compared = {name: found for name, found in sorted(shared.items()) if len(found) > 1}
    columns = (CASE, *(Column(title=name, meaning="newest level of a step") for name in machines))
    rows = tuple(_row(name, found, machines) for name, found in compared.items())
    return Report(
        title="Machines",
        verdict=counted(len(machines), "machine"),
        status=Status.UNTESTED,
        headline=f"{counted(len(compared), 'case')} were measured on more than one of them",
        table=Table(label="machines", columns=columns if rows else (CASE,), rows=rows),
        notes=notes(
            [
                "Each cell is the newest level of a step, and its ratio to the fastest machine.",
                "Machines are compared only here: no verdict compares two of them.",
            ]
        ),
    )


def _row(name: str, found: Sequence[CaseView], machines: Sequence[str]) -> tuple[Cell, ...]:
    levels = {
        view.case.accelerator: (view, view.main.trend.levels[-1])
        for view in found
        if view.main.trend is not None
    }
    fastest = min((level for _, level in levels.values()), default=1.0)
    cells = [Cell(name, name)]
    for machine in machines:
        if machine not in levels:
            cells.append(Cell(ABSENT))
            continue
        view, level = levels[machine]
        text = f"{figure_text(STEP_TIME.name, level, unit=True)} ({level / fastest:.2f} ×)"
        cells.append(Cell(case_link(view, text), level))
    return tuple(cells)
