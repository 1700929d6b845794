"""A duel as text for the terminal, and its sentences in every file alike."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from ddp_perf.core.metric import (
    CPU_TIME,
    EFFICIENCY,
    ENERGY,
    PEAK_MEMORY,
    STEP_TIME,
    TAIL,
    metric_spec,
    metric_title,
)
from ddp_perf.core.verdict import Delta, DuelOutcome
from ddp_perf.duel.values import Duel, MetricDuel
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import (
    ABSENT,
    counted,
    describe_duration,
    milliseconds,
    short_number,
    short_percent,
)
from ddp_perf.report.duel.rows import DuelReport, DuelRow, duel_report
from ddp_perf.report.terminal.text import cause_line, describe_launch_failure
from ddp_perf.work.changes import grows
from ddp_perf.work.text import MOST_LINES, change_sentence, place_text

# The sentences on a case of a duel, in every file of its report alike.


REST = "duel.html has them (--report DIR)"
SHORT_TITLES = {
    STEP_TIME.name: "step",
    CPU_TIME.name: "CPU time",
    TAIL.name: "tail",
    EFFICIENCY.name: "scaling cost",
    PEAK_MEMORY.name: "memory",
    ENERGY.name: "energy",
}
WHOLE_IN_JSON = "(These are the frames of your code; duel.json has the whole traceback.)"
_WRITERS: dict[str, Callable[[float], str]] = {
    "s": lambda value: f"{milliseconds(value)} ms",
    "ratio": lambda value: f"{value:.3f}",
    "bytes": lambda value: f"{value / 2**20:,.1f} MiB",
    "J": lambda value: f"{value:.3g} J",
}


def figure_text(metric: str, value: float | None) -> str:
    """Write a figure in the unit of its metric: ``12.34 ms``, ``812.0 MiB``."""
    if value is None:
        return ABSENT
    return _WRITERS.get(metric_spec(metric).unit, short_number)(value)


def interval_of(one: MetricDuel) -> str:
    """Write the interval of the ratio: ``1.021 to 1.078``."""
    interval = one.verdict.interval
    return ABSENT if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def ratio_of(one: MetricDuel) -> str:
    return ABSENT if one.verdict.ratio is None else f"{one.verdict.ratio:.3f}"


def what_decides(report: DuelReport) -> list[str]:
    """Return why the CPU time of the step decides in place of its wall time: of the first case."""
    found = [row.step for row in report.rows if row.step is not None and row.step.why]
    if not found:
        return []
    others = len(found) - 1
    why = str(found[0].why)
    return [f"{why}; so too in {counted(others, 'other case')}" if others else why]


def what_is_seen(report: DuelReport) -> str | None:
    """Return the minimum detectable effects of the cases on the step, in one line."""
    seen = [effect for row in report.rows if (effect := smallest_seen(row)) is not None]
    if not seen:
        return None
    low, high = effect_text(min(seen)), effect_text(max(seen))
    shown = low if low == high else f"{low} (the steadiest case) to {high}"
    return f"minimum detectable slow-down, found nine times in ten: {shown}"


def effect_text(share: float) -> str:
    """Write a minimum detectable effect with the digits that it deserves: ``3.1 %``."""
    return short_percent(round(share, 3))


def smallest_seen(row: DuelRow) -> float | None:
    """Return the minimum detectable effect on the step: of the verdict, else of the A/A launches.

    None: it is unknown.
    """
    step = row.step
    if step is not None and step.verdict.minimum_detectable is not None:
        return step.verdict.minimum_detectable
    metric = step.metric if step is not None else STEP_TIME.name
    power = (estimate.minimum_detectable for estimate in row.power if estimate.metric == metric)
    return next(power, None)


def reasons(row: DuelRow) -> list[str]:
    """Return each shown verdict with its reason."""
    lines = []
    for one in row.shown:
        title = metric_title(one.metric)
        if not one.decides:
            title += ", which does not decide" + (f" ({one.why})" if one.why else "")
        lines.append(f"{title}: {one.verdict.outcome.value}, {one.verdict.reason}")
    return lines


def cause_lines(row: DuelRow, report: DuelReport, most: int) -> list[str]:
    """Return what differs between the sides, and the terms of the step that changed.

    ``most`` is how many changes of the work are shown.
    """
    lines = [*difference_lines(row), *_work_lines(row, most)]
    return [*(lines or [nothing_found(row, report)]), *step_lines(row)]


def difference_lines(row: DuelRow) -> list[str]:
    """Return what differs between the sides of a case, without the changes of the work."""
    lines = [f"edited line: {place_text(site)}: {site.text}" for site in row.lines[:MOST_LINES]]
    lines += [f"changed option: {option}" for option in row.options]
    if row.structure is not None:
        lines.append(f"structure: {row.structure}")
    if row.uncounted is not None:
        lines.append(f"the work was not counted: {row.uncounted}")
    return lines


def _work_lines(row: DuelRow, most: int) -> list[str]:
    changes = row.work or ()
    lines = [
        f"{'more' if grows(change) else 'other'} work: {change_sentence(change)}"
        for change in changes[:most]
    ]
    if len(changes) > most:
        lines.append(f"and {len(changes) - most} more changes of the work: {REST}")
    return lines


def step_lines(row: DuelRow) -> list[str]:
    """Return the causes by the terms of the step, and the terms that changed."""
    causes = row.explanation.causes if row.explanation is not None else ()
    return [*(f"why: {cause_line(cause)}" for cause in causes), *_term_lines(row)]


def _term_lines(row: DuelRow) -> list[str]:
    """Return the terms of the step that changed by more than chance explains, the largest first.

    If a slower case has none, the largest change is named.
    """
    if not row.terms:
        return []
    changed = [term for term in row.terms if term.is_certain]
    if not changed and row.verdict != DuelOutcome.SLOWER.value:
        return []
    if not changed:
        largest = max(row.terms, key=lambda term: abs(term.change))
        return [f"no term of the step changed for certain; the largest change: {_term(largest)}"]
    changed.sort(key=lambda term: abs(term.change), reverse=True)
    return [f"terms of the step that changed: {', '.join(map(_term, changed))}"]


def _term(term: Delta) -> str:
    return (
        f"{term.name} {milliseconds(term.before)} → {milliseconds(term.after)} ms"
        f" ({term.change * 1e3:+.2f} ± {milliseconds(term.uncertainty)})"
    )


def nothing_found(row: DuelRow, report: DuelReport) -> str:
    """Return what was compared without a difference, and whether the environments differ."""
    compared = "options" if row.work is None else "work or options"
    if report.differences:
        return f"no difference of {compared} was found, but the environments differ"
    return f"no difference of {compared}, of versions or of settings was found"


def certainty(report: DuelReport) -> str:
    """Return the probability of a false alarm."""
    rate = short_percent(report.false_alarm_rate)
    return (
        f"if the sides were equal, the probability of any SLOWER would be at most {rate}, and as"
        " much of any FASTER"
    )


def needs_detail(row: DuelRow) -> bool:
    """Return whether a reader must see what differs: the verdict, a failure, or more work."""
    differs = {one.verdict.outcome for one in row.shown} != {DuelOutcome.EQUIVALENT}
    return differs or bool(row.failures) or any(grows(change) for change in row.work or ())


# A duel as text for the terminal.


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
