"""The report of a duel: the verdict on each case, what differs, and how certain that is."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ddp_perf.core.case import Case
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
from ddp_perf.core.work import Site
from ddp_perf.duel.values import (
    CaseDuel,
    Duel,
    MetricDuel,
    PowerEstimate,
    SideConditions,
    SideFailure,
    SideName,
)
from ddp_perf.render.model import (
    CASE,
    Cell,
    Column,
    Note,
    Plot,
    Report,
    Section,
    Status,
    Summary,
    Table,
    notes,
)
from ddp_perf.render.units import (
    ABSENT,
    change_range,
    counted,
    describe_duration,
    milliseconds,
    percent_change,
    short_names,
    short_number,
    short_percent,
)
from ddp_perf.report.case_text import cause_line, describe_launch_failure
from ddp_perf.report.duel.forest import forest
from ddp_perf.report.duel.rows import DuelReport, DuelRow, duel_report
from ddp_perf.report.figures import MEANINGS
from ddp_perf.report.suite_notes import emulation_notes
from ddp_perf.stats.model_error import MODEL_ERROR
from ddp_perf.work.changes import grows, line_of
from ddp_perf.work.text import change_sentence, edited_notes
from ddp_perf.work.values import WorkChange

if TYPE_CHECKING:
    from ddp_perf.render.chart import Chart

# The report of a duel.


DUEL_PAGE, DUEL_DATA = "duel.html", "duel.json"
_REPORT, _REPORT_OF_PYTEST = "--report DIR", "--ddp-report=DIR"  # that write the page
_MOST_DIFFERENCES = 8  # of the environments, that are named before the table
_LEGEND = (
    "The interval of a running mean holds at one number of pairs, and that of the verdict at all"
    " looks together. A launch is slow if it is two tolerances above the median of its side. Terms"
    " are of the probed steps after the timed ones: "
)
_INTERVALS = (
    "An interval holds at whichever look the test stopped, at the confidence of its test: 90 %"
    " where EQUIVALENT (two one-sided tests at 5 %), else 1 − 2 × its part of that rate."
    " EQUIVALENT: the interval lies within ± the tolerance."
)
DUEL_COLUMNS = (
    CASE,
    Column(
        title="verdict", key="outcome", meaning="whether side B is as fast as side A", words=True
    ),
    Column(title="of", key="metric", meaning="the figure that the verdict is on", words=True),
    Column(title="A", key="a", meaning="the typical figure of side A"),
    Column(title="B", key="b", meaning="the typical figure of side B"),
    Column(title="B ÷ A", key="ratio", meaning="1.05 is 5 % slower"),
    Column(title="interval", key="interval", meaning="of B ÷ A, as certain as the verdict"),
    Column(
        title="detects",
        key="minimum_detectable",
        meaning="minimum detectable effect: the smallest slow-down that the planned pairs find nine"
        " times in ten",
        media="wide",
    ),
    Column(title="pairs", key="pairs", meaning="how often both sides were launched"),
)


def build_duel(duel: Duel) -> Report:
    """Return what a person reads of a duel."""
    report = duel_report(duel)
    pairs = counted(sum(len(row.pairs) for row in report.rows), "pair")
    sections = [_case(case, row, report) for case, row in zip(duel.cases, report.rows, strict=True)]
    return Report(
        title="B against A",
        verdict=report.verdict,
        status=report.status,
        headline=(
            f"{report.headline}; {pairs} of launches in {describe_duration(report.wall_s)}, from"
            f" {report.began[:16].replace('T', ' ')} UTC"
            if report.rows
            else report.headline
        ),
        summary=_summary(report),
        about=notes(_compared(report)),
        ended=report.ended,
        table=Table(
            label="the verdicts on each case",
            of_cases=True,
            columns=DUEL_COLUMNS,
            rows=_rows(report),
        ),
        notes=notes([*_notes(report), *_emulated([case.cases.b for case in duel.cases])]),
        sections=(*sections, *_left_out(duel), *_environments(report)),
        certainty=certainty(report) if report.rows else None,
        next=report.next,
        legend=_LEGEND + "; ".join(f"{term}: {meaning}" for term, meaning in MEANINGS.items()),
        page=DUEL_PAGE,
        option=_REPORT if duel.command is None else _REPORT_OF_PYTEST,
        data=DUEL_DATA,
    )


# What a reader sees first.


_MOST_CAUSES = 3


def _summary(report: DuelReport) -> Summary | None:
    """Return the worst case with its causes, and the intervals of all; None without any case."""
    if not report.rows:
        return None
    rows = sorted(report.rows, key=_badness)
    names = short_names(row.case for row in rows)
    causes, case = _causes(rows[0]), rows[0].case
    if not causes:
        case = ""
        causes = next((_of_another(row) for row in rows if any(map(grows, row.work or ()))), ())
    return Summary(
        verdict=report.verdict,
        worst=_worst(rows[0], len(rows)),
        causes=causes[:_MOST_CAUSES],
        case=case,
        picture=forest(rows, names, DUEL_PAGE),
    )


def _badness(row: DuelRow) -> tuple[int, float]:
    """Return what the worst case has least of: the status, and how much less time B takes.

    An undecided case is as bad as it can be.
    """
    one = _decisive(row)
    ratio = None if one is None else one.verdict.ratio
    open_ = row.verdict == DuelOutcome.UNDECIDED.value and one is not None
    if open_ and one is not None and one.verdict.interval is not None:
        ratio = one.verdict.interval[1]
    of_status = list(Status).index(row.status), row.verdict == DuelOutcome.EQUIVALENT.value
    return 2 * of_status[0] + of_status[1], -math.inf if row.failures else -(ratio or 0.0)


def _decisive(row: DuelRow) -> MetricDuel | None:
    """Return the verdict that is the case's own, the largest slow-down of several."""
    own = [one for one in row.shown if one.decides and one.verdict.outcome.value == row.verdict]
    return max(own, key=lambda one: one.verdict.ratio or 0.0, default=row.step)


def _worst(row: DuelRow, cases: int) -> str:
    one = _decisive(row)
    if row.failures or one is None or one.verdict.ratio is None:
        why = _failure(row.failures[0]).text.partition("\n")[0] if row.failures else "no pairs"
        return f"{row.case}: {why}"
    what = SHORT_TITLES.get(one.metric, one.metric)
    size = f"{what} {percent_change(one.verdict.ratio)} ({change_range(one.verdict.interval)})"
    if row.verdict != DuelOutcome.EQUIVALENT.value or cases == 1:
        return f"{size}, {row.case}"
    return f"{cases} cases within ± {short_percent(one.tolerance)}; most: {size}, {row.case}"


def _causes(row: DuelRow) -> tuple[Note, ...]:
    """Return why a case differs: lines, options and further work, else the terms of its step."""
    more = [_change(change, row.lines) for change in row.work or () if grows(change)]
    return (*_differences(row), *more) or notes(_step_lines(row))


def _of_another(row: DuelRow) -> tuple[Note, ...]:
    return tuple(
        msgspec.structs.replace(note, text=f"{row.case}: {note.text}") for note in _causes(row)
    )


def _left_out(duel: Duel) -> Iterator[Section]:
    """Yield for each reason the names of the cases that it left out."""
    absent = (*duel.left_out, *duel.untouched)
    for reason in dict.fromkeys(one.reason for one in absent):
        names = [one.case_id for one in absent if one.reason == reason]
        title = f"{counted(len(names), 'case')} left out: {reason}"
        yield Section(title=title, parts=notes([", ".join(names)]), media="wide")


def _compared(report: DuelReport) -> Iterator[str]:
    """Yield the sides, and how their environments differ."""
    yield f"A: {report.a.label}"
    yield f"B: {report.b.label}"
    shown = list(report.differences[:_MOST_DIFFERENCES])
    if more := len(report.differences) - len(shown):
        shown.append(f"and {more} more: see {DUEL_PAGE}")
    if shown:
        yield f"differences: {'; '.join(shown)}"


def _rows(report: DuelReport) -> tuple[tuple[Cell, ...], ...]:
    """Return a row for each verdict that a reader must see, after its case."""
    return tuple(row for one in report.rows for row in _rows_of(one))


def _rows_of(row: DuelRow) -> Iterator[tuple[Cell, ...]]:
    name, failed = Cell(row.case, row.case), Cell(row.verdict, row.verdict, row.status)
    if not row.tabled:
        yield (name, failed, *[Cell(ABSENT)] * (len(DUEL_COLUMNS) - 2))
    for place, one in enumerate(row.tabled):
        outcome, status = one.verdict.outcome.value, row.status if place == 0 else None
        own = Cell(outcome if one.decides else f"({outcome})", outcome, status)
        yield (name, failed if place == 0 and row.failures else own, *_figures(one))


def _figures(one: MetricDuel) -> Iterator[Cell]:
    verdict, seen = one.verdict, one.verdict.minimum_detectable
    yield Cell(SHORT_TITLES.get(one.metric, one.metric), one.metric)
    yield Cell(figure_text(one.metric, one.a), one.a)
    yield Cell(figure_text(one.metric, one.b), one.b)
    yield Cell(ABSENT if verdict.ratio is None else f"{verdict.ratio:.3f}", verdict.ratio)
    yield _interval(one)
    yield Cell(ABSENT if seen is None else f"≥ {effect_text(seen)}", seen)
    yield Cell(str(verdict.pairs), verdict.pairs)


def _notes(report: DuelReport) -> Iterator[str]:
    """Yield what the table is about, what can be seen, and the cases without a verdict."""
    tolerances = {row.step.tolerance for row in report.rows if row.step is not None}
    if tolerances:
        low, high = short_percent(min(tolerances)), short_percent(max(tolerances))
        within = low if low == high else f"{low} to {high}, by case"
        yield f"B ÷ A: 1.05 is 5 % slower. EQUIVALENT: within ± {within}"
    yield from _what_decides(report)
    if seen := _what_is_seen(report):
        yield seen
    for one in report.missing:
        yield f"NOT COMPARED: {one.case_id}: {one.reason}"
    for why, number in report.left_out.items():
        yield f"left out: {counted(number, 'case')}: {why}"


def _emulated(cases: Sequence[Case]) -> Iterator[str]:
    """Yield what is not in the times of emulated cases, and what is in their intervals."""
    yield from emulation_notes(cases)
    if any(case.network is not None for case in cases):
        of_change, of_step = map(short_percent, MODEL_ERROR)
        yield (
            f"intervals of an emulated step are wider for that model, by ± {of_step}, within which"
            f" none is EQUIVALENT, and by ± {of_change} of the change"
        )


def certainty(report: DuelReport) -> str:
    """Return the probability of a false alarm."""
    rate = short_percent(report.false_alarm_rate)
    return (
        f"if A and B are equally fast, the chance that even one case is SLOWER is at most {rate};"
        " likewise FASTER"
    )


# A case of a duel: its reasons, its causes and, on the page, all of its figures.


def _case(case: CaseDuel, row: DuelRow, report: DuelReport) -> Section:
    differences = _differences(row)
    unknown = (
        [] if row.work or differences or row.failures else [Note(text=_nothing_found(row, report))]
    )
    return Section(
        title=row.case,
        verdict=row.verdict,
        status=row.status,
        parts=(
            *map(_failure, row.failures),
            *notes(_reasons(row)),
            *differences,
            *unknown,
            *(_change(change, row.lines) for change in row.work or ()),
            *notes([*_step_lines(row), *_conditions_of(row)]),
            *(Note(text=_spread(estimate), media="page") for estimate in row.power),
            *([Plot(functools.partial(_charts, case, row))] if case.pairs else []),
            *([_all_figures(row)] if row.metrics else []),
        ),
        media="all" if _needs_detail(row) else "page",
    )


def _needs_detail(row: DuelRow) -> bool:
    """Return whether a reader must see what differs: the verdict, a failure, or more work."""
    differs = {one.verdict.outcome for one in row.shown} != {DuelOutcome.EQUIVALENT}
    return differs or bool(row.failures) or any(grows(change) for change in row.work or ())


def cause_lines(duel: Duel, case_id: str, most: int) -> list[str]:
    """Return what differs between the sides of a case, and the terms of the step that changed.

    ``most`` is how many changes of the work are shown.
    """
    report = duel_report(duel)
    row = next(row for row in report.rows if row.case == case_id)
    work = [_change(change, row.lines).text for change in row.work or ()]
    if more := len(work[most:]):
        more_changes = counted(more, "more change")
        work[most:] = [f"and {more_changes} of the work: see {DUEL_PAGE} ({_REPORT_OF_PYTEST})"]
    lines = [*(note.text for note in _differences(row)), *work] or [_nothing_found(row, report)]
    return [*lines, *_step_lines(row)]


# The sentences on a case of a duel.


SHORT_TITLES = {
    STEP_TIME.name: "step",
    CPU_TIME.name: "CPU time",
    TAIL.name: "tail",
    EFFICIENCY.name: "scaling cost",
    PEAK_MEMORY.name: "memory",
    ENERGY.name: "energy",
}
_WHOLE_IN_JSON = "(These are the frames of your code; duel.json has the whole traceback.)"
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


def _interval(one: MetricDuel) -> Cell:
    """Return the interval of the ratio: ``1.021 to 1.078``."""
    if one.verdict.interval is None:
        return Cell(ABSENT)
    low, high = one.verdict.interval
    return Cell(f"{low:.3f} to {high:.3f}", low)


def _what_decides(report: DuelReport) -> list[str]:
    """Return why the CPU time of the step decides in place of its wall time: of the first case."""
    found = [row.step for row in report.rows if row.step is not None and row.step.why]
    if not found:
        return []
    others = len(found) - 1
    why = str(found[0].why)
    return [f"{why}; so too in {counted(others, 'other case')}" if others else why]


def _what_is_seen(report: DuelReport) -> str | None:
    """Return the minimum detectable effects of the cases on the step, in one line."""
    seen = [effect for row in report.rows if (effect := smallest_seen(row)) is not None]
    if not seen:
        return None
    low, high = effect_text(min(seen)), effect_text(max(seen))
    noisiest = "" if low == high else f"; in the noisiest case, one of {high}"
    return f"a slow-down of {low} would be found nine times in ten{noisiest}"


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


def _reasons(row: DuelRow) -> list[str]:
    """Return each shown verdict with its reason."""
    lines = []
    for one in row.shown:
        title = metric_title(one.metric)
        if not one.decides:
            title += ", which does not decide" + (f" ({one.why})" if one.why else "")
        lines.append(f"{title}: {one.verdict.outcome.value}, {one.verdict.reason}")
    return lines


def _differences(row: DuelRow) -> list[Note]:
    """Return what differs between the sides of a case, without the changes of the work."""
    texts = [f"changed option: {option}" for option in row.options]
    if row.structure is not None:
        texts.append(f"structure: {row.structure}")
    if row.uncounted is not None:
        texts.append(f"the work was not counted: {row.uncounted}")
    return [*edited_notes(row.lines), *notes(texts)]


def _step_lines(row: DuelRow) -> list[str]:
    """Return the causes by the terms of the step, and the terms that changed."""
    causes = row.explanation.causes if row.explanation is not None else ()
    return [*(f"why: {cause_line(cause)}" for cause in causes), *_term_lines(row)]


def _term_lines(row: DuelRow) -> list[str]:
    """Return the terms of the step that changed by more than chance explains, the largest first."""
    if not row.terms:
        return []
    changed = [term for term in row.terms if term.is_certain]
    if not changed and row.verdict != DuelOutcome.SLOWER.value:
        return []
    if not changed:
        return ["timing data, forward and so on by themselves did not locate the extra time"]
    changed.sort(key=lambda term: abs(term.change), reverse=True)
    return [f"terms of the step that changed: {', '.join(map(_term, changed))}"]


def _term(term: Delta) -> str:
    return (
        f"{term.name} {milliseconds(term.before)} → {milliseconds(term.after)} ms"
        f" ({term.change * 1e3:+.2f} ± {milliseconds(term.uncertainty)})"
    )


def _nothing_found(row: DuelRow, report: DuelReport) -> str:
    """Return what was compared without a difference, and whether the environments differ."""
    compared = "options" if row.work is None else "work or options"
    if report.differences:
        return f"no difference of {compared} was found, but the environments differ"
    return f"no difference of {compared}, of versions or of settings was found"


def _change(change: WorkChange, edited: Sequence[Site]) -> Note:
    more = "more" if grows(change) else "other"
    text = f"{more} work: {change_sentence(change)}"
    return Note(text=text, kind="change", source=line_of(change, edited))


def _failure(failed: SideFailure) -> Note:
    described = describe_launch_failure(failed.failure, remark=_WHOLE_IN_JSON)
    described = described.removeprefix(f"{failed.failure.case_id}: ")  # the heading has it
    return Note(text=f"side {failed.side} failed: {described}", kind="output")


def _conditions_of(row: DuelRow) -> Iterator[str]:
    """Yield what disturbed the launches of a case, and what they could show."""
    for side, text in row.disturbed.items():
        yield f"side {side}: {text}"
    seen = smallest_seen(row)
    if seen is not None and row.verdict == DuelOutcome.UNDECIDED.value:
        yield (
            f"if the whole budget is spent on pairs, they find a slow-down of {effect_text(seen)}"
            " nine times in ten"
        )


def _spread(estimate: PowerEstimate) -> str:
    return (
        f"{metric_title(estimate.metric)}: pairs differ by {effect_text(estimate.spread)} (sd), by"
        f" {counted(estimate.launches, 'launch')} of A alone"
    )


# The figures and plots of a case, and the conditions of both sides, for the page.


_FIGURES = (
    Column(title="figure", words=True),
    Column(title="outcome", words=True),
    Column(title="A"),
    Column(title="B"),
    Column(title="B ÷ A"),
    Column(title="interval", meaning=_INTERVALS),
    Column(title="tolerance"),
    Column(title="reason", words=True),
)


def _all_figures(row: DuelRow) -> Table:
    """Return every verdict on a case, with its reason and whether it decides."""
    rows = []
    for one in row.metrics:
        verdict = one.verdict
        why = f" ({one.why})" if one.why else ""
        reason = f"{verdict.reason}{why if one.decides else f'; it does not decide{why}'}"
        rows.append(
            (
                Cell(metric_title(one.metric), one.metric),
                Cell(verdict.outcome.value, verdict.outcome.value),
                Cell(figure_text(one.metric, one.a), one.a),
                Cell(figure_text(one.metric, one.b), one.b),
                Cell(ABSENT if verdict.ratio is None else f"{verdict.ratio:.3f}", verdict.ratio),
                _interval(one),
                Cell(short_percent(one.tolerance), one.tolerance),
                Cell(reason),
            )
        )
    label = f"all figures of {row.case}"
    return Table(label=label, columns=_FIGURES, rows=tuple(rows), media="page")


def _charts(case: CaseDuel, row: DuelRow) -> Iterator[Chart]:
    # Imported here: charts take a third of a second, and only a page needs them.
    from ddp_perf.report.duel.charts import case_charts

    return case_charts(case, row)


def _environments(report: DuelReport) -> Iterator[Section]:
    """Yield what differs between the environments, and on the page all that is known of them."""
    fields = {side: _fields(found) for side, found in report.conditions.items()}
    packages = {side: found.packages for side, found in report.conditions.items()}
    differing = [row for row in _side_by_side(packages) if row[1] != row[2]]
    tables = [
        _sides("packages that differ", "package", differing),
        _sides("versions and settings of both sides", "field", _side_by_side(fields)),
    ]
    if report.differences or any(table.rows for table in tables):
        yield Section(
            title=(
                f"the environments differ ({len(report.differences)})"
                if report.differences
                else "the environments: no difference is known"
            ),
            parts=(
                *notes(report.differences),
                *(table for table in tables if table.rows),
            ),
            media="wide" if len(report.differences) > _MOST_DIFFERENCES else "page",
        )


def _fields(conditions: SideConditions) -> dict[str, str]:
    fields = {**conditions.environment.conditions(), **msgspec.structs.asdict(conditions.runtime)}
    return {
        name.replace("_", " "): str(value) for name, value in fields.items() if value is not None
    }


def _side_by_side(fields: Mapping[SideName, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Return each field with its text on both sides, those that differ first."""
    a, b = (fields.get("A", {}), fields.get("B", {}))
    rows = [(name, a.get(name, ABSENT), b.get(name, ABSENT)) for name in dict.fromkeys([*a, *b])]
    return sorted(rows, key=lambda row: row[1] == row[2])


def _sides(label: str, name: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    columns = tuple(Column(title=title, words=True) for title in (name, "A", "B"))
    cells = tuple(tuple(Cell(text, text) for text in row) for row in rows)
    return Table(label=label, columns=columns, rows=cells, media="page")
