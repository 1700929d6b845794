"""``duel.html`` and ``work.html``: each case with its pairs, its steps, and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from markupsafe import Markup

from ddp_perf.core.metric import metric_title
from ddp_perf.duel.values import CaseDuel, Duel, MetricDuel, SideConditions, SideName
from ddp_perf.render.tables import short_names
from ddp_perf.render.units import ABSENT, describe_duration, prefixed_number
from ddp_perf.report.duel.rows import DuelReport, DuelRow, duel_report
from ddp_perf.report.duel.text import (
    WHOLE_IN_JSON,
    certainty,
    difference_lines,
    figure_text,
    interval_of,
    nothing_found,
    smallest_seen,
    step_lines,
    what_decides,
    what_is_seen,
)
from ddp_perf.report.figures import MEANINGS
from ddp_perf.report.html.page import environment
from ddp_perf.report.html.svg_plots import (
    PlottedPair,
    Stack,
    line_plot,
    ratio_plot,
    step_curves,
    term_plot,
)
from ddp_perf.report.next_step import Status
from ddp_perf.report.terminal.text import describe_launch_failure
from ddp_perf.report.work_rows import MODELLED, ChangeRow, StepFigures, WorkReport, WorkRow
from ddp_perf.stats.step_decomposition import decompose, typical
from ddp_perf.work.cost import cost_text, signed_ms
from ddp_perf.work.text import MOST_LINES, bytes_text, change_summary, place_text

# ``work.html``: what each counted case does more and less, at which line, and what that costs.


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


# ``duel.html``: each case of a duel with its pairs, its steps, and what differs.


class DuelSection(msgspec.Struct, frozen=True, kw_only=True):
    """One case, in a fold that shows its name."""

    row: DuelRow
    name: str  # without the parts that all cases share
    causes: list[str]  # what differs; the table of changes has the work
    changes: list[ChangeRow]
    failures: list[str]
    pairs: list[Markup]  # plots of the pairs
    steps: Markup | None  # all timed steps
    terms: Markup | None
    detectable: float | None


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the conditions of both sides."""

    name: str
    a: str
    b: str

    @property
    def differs(self) -> bool:
        return self.a != self.b


def duel_html(duel: Duel) -> bytes:
    """Return the whole page in UTF-8."""
    report = duel_report(duel)
    names = short_names(row.case for row in report.rows)
    page = (
        environment()
        .get_template("duel.html.j2")
        .render(
            report=report,
            Status=Status,
            word=report.verdict,
            lasted=describe_duration(report.wall_s),
            sections=[
                _section(case, row, names[row.case], report)
                for case, row in zip(duel.cases, report.rows, strict=True)
            ],
            notes=[*what_decides(report), *filter(None, [what_is_seen(report)])],
            certainty=certainty(report),
            title_of=metric_title,
            figure=figure_text,
            interval=interval_of,
            compared=_conditions(report.conditions),
            packages=_packages(report.conditions),
            meanings=MEANINGS,
            amount=amount_text,
            place=place_text,
            ms=signed_ms,
        )
    )
    return page.encode("utf-8", "replace")


def _section(case: CaseDuel, row: DuelRow, name: str, report: DuelReport) -> DuelSection:
    return DuelSection(
        row=row,
        name=name,
        causes=_causes(row, report),
        changes=[ChangeRow(text=change_summary(one), change=one) for one in row.work or ()],
        failures=[
            f"side {one.side}: {describe_launch_failure(one.failure, remark=WHOLE_IN_JSON)}"
            for one in row.failures
        ],
        pairs=_pair_plots(row),
        steps=_step_curves(case),
        terms=_terms(case),
        detectable=smallest_seen(row),
    )


def _causes(row: DuelRow, report: DuelReport) -> list[str]:
    lines = difference_lines(row)
    unknown = [] if lines or row.work else [nothing_found(row, report)]
    return [*lines, *unknown, *step_lines(row)]


def _pair_plots(row: DuelRow) -> list[Markup]:
    """Draw the pairs by the figure of the step that decides."""
    step = row.step
    pairs = _plotted(row, step) if step is not None else []
    if step is None or not pairs:
        return []
    plots = [ratio_plot(pairs, step.tolerance, step.verdict)]
    aa = [1e3 * figures[step.metric] for figures in row.aa if step.metric in figures]
    return [*plots, line_plot(pairs, "ms a step", aa)]


def _plotted(row: DuelRow, step: MetricDuel) -> list[PlottedPair]:
    found = []
    for pair in row.pairs:
        if step.metric in pair.a and step.metric in pair.b:
            a, b = 1e3 * pair.a[step.metric], 1e3 * pair.b[step.metric]
            tip = f"A {a:.4g} ms, B {b:.4g} ms, {pair.first} first"
            found.append(PlottedPair(a=a, b=b, tip=tip))
    return found


def _step_curves(case: CaseDuel) -> Markup | None:
    """Draw all steps of both sides."""
    if not case.pairs:
        return None
    sides = ((pair.a for pair in case.pairs), (pair.b for pair in case.pairs))
    return step_curves(
        *([1e3 * seconds for launch in side for seconds in launch.step_s] for side in sides)
    )


def _terms(case: CaseDuel) -> Markup | None:
    """Draw the terms of the typical step of each side; None if a side was not probed."""
    stacks = []
    for name in ("A", "B"):
        launches = [pair.a if name == "A" else pair.b for pair in case.pairs]
        probed = (decompose(launch) for launch in launches)
        step = typical([found for found in probed if found is not None])
        if step is not None:
            stacks.append(Stack(name=name, step=step, step_s=step.step_s))
    return term_plot(stacks) if len(stacks) == 2 else None


def _conditions(conditions: Mapping[SideName, SideConditions]) -> list[Compared]:
    """Return the known fields of both sides, those that differ first."""
    fields = {side: _fields(found) for side, found in conditions.items()}
    return _compared(fields.get("A", {}), fields.get("B", {}))


def _packages(conditions: Mapping[SideName, SideConditions]) -> list[Compared]:
    """Return the distributions that differ."""
    a, b = (conditions[side].packages if side in conditions else {} for side in ("A", "B"))
    return [one for one in _compared(a, b) if one.differs]


def _fields(conditions: SideConditions) -> dict[str, str]:
    fields = {**conditions.environment.conditions(), **msgspec.structs.asdict(conditions.runtime)}
    return {name: str(value) for name, value in fields.items() if value is not None}


def _compared(a: Mapping[str, str], b: Mapping[str, str]) -> list[Compared]:
    names: Sequence[str] = list(dict.fromkeys([*a, *b]))
    rows = [Compared(name=name, a=a.get(name, "–"), b=b.get(name, "–")) for name in names]
    return sorted(rows, key=lambda row: not row.differs)
