"""Counted cases: a row for each, and the report that people read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ddp_perf.core.work import Site, StepWork
from ddp_perf.render.model import (
    CASE,
    Cell,
    Column,
    NextStep,
    Note,
    Report,
    Section,
    Status,
    Summary,
    Table,
    notes,
)
from ddp_perf.render.units import ABSENT, counted, prefixed_number, suite_names
from ddp_perf.report.next_steps.work import after_work
from ddp_perf.work.changes import line_of
from ddp_perf.work.cost import WorkCost, cost_text, model_of, signed_ms, work_cost
from ddp_perf.work.text import bytes_text, change_sentence, change_summary, edited_notes
from ddp_perf.work.values import CountedCase, WorkChange, host_reads, total_of

# One row for each counted case.


SCHEMA_VERSION = 1
NOT_COUNTED = "NOT COUNTED"
STORED = "STORED"  # by this session, so the verdict on what was stored before is settled
MODELLED = (
    "Costs are modelled, not measured: bytes ÷ memory bandwidth or FLOPs ÷ peak, launches, host"
    " reads, and the α-β model for collectives; without overlap, caches and fused kernels."
    " Published steps took 0.7 to 2.6 times as long as modelled ones."
)


class StepFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a counted step."""

    operations: int
    bytes: int  # read and written
    flops: int
    host_reads: int
    collectives: int
    collective_bytes: int
    allocations: int
    peak: int  # bytes


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change with its sentence, and its modelled cost by accelerator."""

    text: str
    change: WorkChange
    cost_s: dict[str, float] = {}  # empty: it takes no time itself, or nothing models it


class WorkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A counted case with its verdict."""

    suite: str
    case: str
    ranks: int
    status: Status
    verdict: str
    reason: str
    options: tuple[str, ...] = ()  # of the suite, that changed
    lines: tuple[Site, ...] = ()  # that were edited and do more; what costs most comes first
    before: StepFigures | None = None
    after: StepFigures | None = None
    changes: tuple[ChangeRow, ...] = ()
    costs: tuple[WorkCost, ...] = ()


class WorkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The counted cases of a session, and its status."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    headline: str
    counts: dict[str, int]  # cases by verdict, the most frequent first
    rows: tuple[WorkRow, ...]
    next: NextStep | None = None


def work_report(
    cases: Sequence[CountedCase],
    accelerators: Mapping[str, Sequence[str]],
    command: str | None = None,
) -> WorkReport:
    """Return the rows and the status. ``accelerators`` are those to model on, by suite.

    ``command`` is that of the session; without it there is no next command.
    """
    rows = tuple(_row(one, accelerators.get(one.case.suite, ())) for one in cases)
    counts = dict(Counter(row.verdict for row in rows).most_common())
    found = {row.status for row in rows}
    status = next((one for one in Status if one in found), Status.UNDECIDED)
    shown = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    headline = f"{counted(len(rows), 'case')}: {shown}" if rows else "nothing was counted"
    then = None if command is None else after_work(cases, command)
    return WorkReport(status=status, headline=headline, counts=counts, rows=rows, next=then)


def _row(one: CountedCase, accelerators: Sequence[str]) -> WorkRow:
    case, verdict = one.case, one.verdict
    row = WorkRow(
        suite=case.suite,
        case=case.id,
        ranks=case.world_size,
        status=Status.RED,
        verdict=NOT_COUNTED,
        reason=one.failure or "the case has no verdict",
    )
    if verdict is None:
        return row
    costs = (work_cost(one, accelerator) for accelerator in accelerators)
    return msgspec.structs.replace(
        row,
        status=Status.of(verdict.outcome) if one.saved is None else Status.GREEN,
        verdict=verdict_word(one),
        reason=verdict.reason,
        options=verdict.options,
        lines=verdict.lines,
        before=None if one.stored is None else step_figures(one.stored),
        after=None if one.work is None else step_figures(one.work),
        changes=tuple(_change_row(one, change, accelerators) for change in verdict.changes),
        costs=tuple(cost for cost in costs if cost is not None),
    )


def verdict_word(one: CountedCase) -> str:
    """Return the verdict in a word, as a table shows it."""
    if one.verdict is None:
        return NOT_COUNTED
    return one.verdict.outcome.value if one.saved is None else STORED


def _change_row(one: CountedCase, change: WorkChange, accelerators: Sequence[str]) -> ChangeRow:
    costs = {}
    for accelerator in accelerators:
        model = model_of(one, accelerator)
        if model is None or one.stored is None or one.work is None:
            continue
        cost = model.change(change, one.stored, one.work)
        if cost.seconds and not cost.left_out:
            costs[accelerator] = cost.seconds
    return ChangeRow(text=change_summary(change), change=change, cost_s=costs)


def step_figures(work: StepWork) -> StepFigures:
    """Return the totals of a step."""
    total = total_of(work)
    return StepFigures(
        operations=total.count,
        bytes=total.bytes,
        flops=total.flops,
        host_reads=host_reads(work),
        collectives=len(work.collectives),
        collective_bytes=sum(one.bytes for one in work.collectives),
        allocations=work.memory.allocations,
        peak=work.memory.peak,
    )


# The report of counted work: a table of all cases, and what is more or other work with its line.


WORK_PAGE, WORK_DATA = "work.html", "work.json"
WORK_COLUMNS = (
    CASE,
    Column(
        title="verdict", key="verdict", meaning="against the counts that are stored", words=True
    ),
    Column(title="operations", key="operations", meaning="what torch dispatches"),
    Column(title="FLOPs", key="flops", meaning="of matrix products, convolutions and attention"),
    Column(title="bytes moved", key="bytes", meaning="what operations read and write"),
    Column(title="host reads", key="host_reads", meaning="values that the host waits for"),
    Column(title="collec\u00adtives", key="collectives", meaning="communication between the ranks"),
    Column(title="bytes sent", key="collective_bytes", meaning="by collectives", media="page"),
    Column(
        title="allo\u00adcations",
        key="allocations",
        meaning="how often memory is requested",
        media="page",
    ),
    Column(title="peak memory", key="peak", meaning="above that before the step, by counting"),
)


_WRITERS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("operations", "{:,}".format),
    ("flops", prefixed_number),
    ("bytes", bytes_text),
    ("host_reads", "{:,}".format),
    ("collectives", "{:,}".format),
    ("collective_bytes", bytes_text),
    ("allocations", "{:,}".format),
    ("peak", bytes_text),
)


def build_work(report: WorkReport) -> Report:
    """Return what a person reads of counted work."""
    shown = [
        (row, name)
        for row, name in zip(report.rows, _names(report.rows), strict=True)
        if row.changes or row.status is not Status.GREEN
    ]
    suites = sorted({row.suite for row in report.rows})
    modelled = [MODELLED] if any(row.costs for row in report.rows) else []
    return Report(
        title="work of a training step, counted",
        verdict=report.status.value,
        status=report.status,
        headline=report.headline,
        summary=_summary(report.rows),
        table=work_table(report.rows),
        notes=notes(modelled, media="page"),
        about=notes(f"suite: {suite}" for suite in suites),
        sections=tuple(_section(row, name) for row, name in shown),
        legend="Counts are exact and need no quiet machine. A case is RED if its step does more"
        " than the stored one, or other work, or cannot be counted",
        next=report.next,
        page=WORK_PAGE,
        data=WORK_DATA,
    )


_MOST_CAUSES = 3


def _summary(rows: Sequence[WorkRow]) -> Summary | None:
    """Return the worst case, and what its step does more with its line; None without any case."""
    if not rows:
        return None
    worst = min(rows, key=lambda row: (list(Status).index(row.status), not row.changes))
    name = _names(rows)[rows.index(worst)]
    changes = [_change_note(row, worst.lines, alone=True) for row in worst.changes]
    options = notes(f"changed option: {option}" for option in worst.options)
    differs = worst.changes or worst.status is not Status.GREEN
    reason = worst.reason.partition(": ")[0]  # a change follows, which is a cause
    return Summary(
        verdict=f"work {worst.verdict}",
        worst=f"{reason}, {name}" if differs else f"{counted(len(rows), 'case')} as stored",
        causes=(*edited_notes(worst.lines), *options, *changes)[:_MOST_CAUSES],
        case=worst.case,
    )


def work_table(rows: Sequence[WorkRow]) -> Table:
    """Return the totals of each step; with those of several suites, the suite is in the name."""
    cells = []
    for row, name in zip(rows, _names(rows), strict=True):
        verdict = Cell(row.verdict, row.verdict, row.status)
        cells.append((Cell(name, name), verdict, *_totals(row.before, row.after)))
    return Table(
        label="counts of each case", of_cases=True, columns=WORK_COLUMNS, rows=tuple(cells)
    )


def _names(rows: Sequence[WorkRow]) -> list[str]:
    return suite_names([(row.suite, row.case) for row in rows])


def _totals(before: StepFigures | None, after: StepFigures | None) -> list[Cell]:
    """Return the figures of a step, with what they were before where that differs."""
    if after is None:
        return [Cell(ABSENT)] * len(_WRITERS)
    return [_total(write, getattr(before or after, n), getattr(after, n)) for n, write in _WRITERS]


def _total(write: Callable[[int], str], before: int, after: int) -> Cell:
    then, now = write(before), write(after)
    return Cell(now if then == now else f"{then} → {now}", after)


def _section(row: WorkRow, name: str) -> Section:
    """Return the verdict on a case, its likely causes, its cost, and each change."""
    failed = row.verdict == NOT_COUNTED
    sentences = [f"changed option: {option}" for option in row.options]
    sentences += [cost_text(cost) for cost in row.costs]
    return Section(
        title=name,
        verdict=row.verdict,
        status=row.status,
        parts=(
            Note(text=row.reason, kind="output" if failed else "sentence"),
            *edited_notes(row.lines),
            *notes(sentences),
            *(
                _change_note(change, row.lines, alone=len(row.changes) == 1)
                for change in row.changes
            ),
        ),
    )


def _change_note(row: ChangeRow, edited: Sequence[Site], *, alone: bool) -> Note:
    """Return a change with its cost; that of the only change is the cost of the case."""
    by_key = {} if alone else row.cost_s
    costs = [f"{signed_ms(cost)} ms on {key.upper()}" for key, cost in by_key.items()]
    text = "; modelled: ".join(
        [change_sentence(row.change), *([", ".join(costs)] if costs else [])]
    )
    return Note(text=text, kind="change", source=line_of(row.change, edited))
