"""A duel as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ddp_perf.core.duel import DuelOutcome
from ddp_perf.duel.values import Duel, MetricDuel
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import ABSENT, counted, describe_duration, short_percent
from ddp_perf.report.duel.phrases import (
    REST,
    SHORT_TITLES,
    WHOLE_IN_JSON,
    cause_lines,
    certainty,
    effect_text,
    figure_text,
    interval_of,
    needs_detail,
    ratio_of,
    reasons,
    smallest_seen,
    what_decides,
    what_is_seen,
)
from ddp_perf.report.duel.rows import DuelReport, DuelRow, duel_report
from ddp_perf.report.terminal.text import describe_launch_failure

_FIGURES = 71  # columns of the table without the names of the cases
_MOST_CHANGES = 3  # of the work of a case
_MOST_DIFFERENCES = 8  # of the environments
_MOST_OUTPUT = 12  # lines of a failure
_HEADINGS = ("of", "A", "B", "B ÷ A", "interval", "pairs", "verdict")


def duel_text(duel: Duel, width: int) -> str:
    """Return what was compared, a table of the cases, the causes, and the one next command."""
    report, width = duel_report(duel), max(width, NARROWEST)
    lines = wrapped(list(_compared(report)), width)
    if report.rows:
        lines += ["", *_table(report, width), "", *wrapped(list(_notes(report)), width)]
    missing = [f"NOT COMPARED: {one.case_id}: {one.reason}" for one in report.missing]
    left_out = [f"left out: {counted(n, 'case')}: {why}" for why, n in report.left_out.items()]
    lines += wrapped([*missing, *left_out], width)
    for row in report.rows:
        if needs_detail(row):
            lines += ["", *_detail(row, report, width)]
    lines += ["", *wrapped([f"B against A: {report.verdict}", certainty(report)], width)]
    if report.next is not None:
        lines += [*wrapped([report.next.why], width), f"next: {report.next.command}"]
    return "\n".join(lines)


def _compared(report: DuelReport) -> Iterator[str]:
    """Yield the sides, how their environments differ, and the cases by verdict."""
    yield f"A: {report.a.label}"
    yield f"B: {report.b.label}"
    shown = list(report.differences[:_MOST_DIFFERENCES])
    if more := len(report.differences) - len(shown):
        shown.append(f"and {more} more: {REST}")
    if shown:
        yield f"differences: {'; '.join(shown)}"
    pairs = counted(sum(len(row.pairs) for row in report.rows), "pair")
    yield f"{report.headline}; {pairs} of launches in {describe_duration(report.wall_s)}"
    if report.ended is not None:
        yield report.ended


def _table(report: DuelReport, width: int) -> list[str]:
    """Return a line for each verdict, after its case; a long name has a line of its own."""
    names = short_names(row.case for row in report.rows)
    beside = max(map(len, names.values())) <= width - _FIGURES
    table = plain_table()
    table.add_column("case" if beside else "")
    for heading in _HEADINGS:
        aligned = "left" if heading in ("of", "verdict") else "right"
        table.add_column(heading, justify=aligned, no_wrap=True)  # type: ignore[arg-type]
    titles: list[str] = []
    for row in report.rows:
        for place, cells in enumerate(_cells(row)):
            first = place == 0
            table.add_row(names[row.case] if first and beside else "", *cells)
            titles.append(row.case if first and not beside else "")
    headings, rule, *lines = rendered(table, width)
    shown = [
        line for title, cells in zip(titles, lines, strict=True) for line in (title, cells) if line
    ]
    return [headings, rule, *shown]


def _cells(row: DuelRow) -> list[list[str]]:
    """Return the cells of each verdict of a case. A failure takes the place of that on the step."""
    lines = [_verdict_cells(one) for one in row.tabled]
    if row.failures or not lines:
        step = lines[0][:-1] if row.step is not None else [ABSENT] * (len(_HEADINGS) - 1)
        lines[:1] = [[*step, row.verdict]]
    return lines


def _verdict_cells(one: MetricDuel) -> list[str]:
    return [
        SHORT_TITLES.get(one.metric, one.metric),
        figure_text(one.metric, one.a),
        figure_text(one.metric, one.b),
        ratio_of(one),
        interval_of(one),
        str(one.verdict.pairs),
        one.verdict.outcome.value if one.decides else f"({one.verdict.outcome.value})",
    ]


def _notes(report: DuelReport) -> Iterator[str]:
    """Yield what the table is about: the tolerance, what decides, and what can be seen."""
    tolerances = {row.step.tolerance for row in report.rows if row.step is not None}
    if tolerances:
        low, high = short_percent(min(tolerances)), short_percent(max(tolerances))
        within = low if low == high else f"{low} to {high}, by case"
        yield f"B ÷ A: 1.05 is 5 % slower. EQUIVALENT: within ± {within}"
    yield from what_decides(report)
    if seen := what_is_seen(report):
        yield seen


def _detail(row: DuelRow, report: DuelReport, width: int) -> list[str]:
    """Return the reasons of a case, its failures, what differs, and what disturbed it."""
    paragraphs = [
        *reasons(row),
        *cause_lines(row, report, _MOST_CHANGES),
        *(f"side {side}: {text}" for side, text in row.disturbed.items()),
    ]
    seen = smallest_seen(row)
    if row.verdict == DuelOutcome.UNDECIDED.value and seen is not None:
        paragraphs.append(
            f"a whole budget of pairs finds a slow-down of {effect_text(seen)} nine times in ten"
        )
    body = wrapped(paragraphs, width - 2)
    for failed in row.failures:
        described = describe_launch_failure(failed.failure, remark=WHOLE_IN_JSON)
        body += [f"side {failed.side} failed:", *_shortened(described)]
    return [f"{row.case}: {row.verdict}", *textwrap.indent("\n".join(body), "  ").splitlines()]


def _shortened(text: str) -> list[str]:
    """Return the first line of a failure, and the last ones."""
    first, *rest = text.splitlines()
    if len(rest) <= _MOST_OUTPUT:
        return [first, *rest]
    left_out = len(rest) - _MOST_OUTPUT
    return [first, f"… {counted(left_out, 'line')} left out: {REST}", *rest[-_MOST_OUTPUT:]]
