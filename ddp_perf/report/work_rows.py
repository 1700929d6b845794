"""Counted cases: a row for each, Markdown for a pull request, and annotations of lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ddp_perf.core.verdict import Outcome
from ddp_perf.core.work import Site, StepWork
from ddp_perf.render.units import counted
from ddp_perf.report.files.markdown import MOST, SIGNS, error_line, markdown_escaped
from ddp_perf.report.next_step import Status
from ddp_perf.work.changes import grows
from ddp_perf.work.cost import WorkCost, cost_text, model_of, signed_ms, work_cost
from ddp_perf.work.text import MOST_LINES, change_summary, place_text
from ddp_perf.work.values import CountedCase, WorkChange, host_reads

# One row for each counted case. The files of the work report are written from these rows.


SCHEMA_VERSION = 1
NOT_COUNTED = "NOT COUNTED"
STORED = "STORED"  # by this session, so the verdict on what was stored before is settled
MODELLED = (
    "Costs are modelled, not measured: bytes ÷ memory bandwidth or FLOPs ÷ peak, launches, host"
    " reads, and the α-β model for collectives; without overlap, caches and fused kernels."
    " Published steps took 0.7 to 2.6 times as long as modelled ones (docs/work.md)."
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

    def of(self, status: Status) -> list[WorkRow]:
        return [row for row in self.rows if row.status is status]


def work_report(
    cases: Sequence[CountedCase], accelerators: Mapping[str, Sequence[str]]
) -> WorkReport:
    """Return the rows and the status. ``accelerators`` are those to model on, by suite."""
    rows = tuple(_row(one, accelerators.get(one.case.suite, ())) for one in cases)
    counts = dict(Counter(row.verdict for row in rows).most_common())
    found = {row.status for row in rows}
    status = next((one for one in Status if one in found), Status.UNDECIDED)
    shown = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    headline = f"{counted(len(rows), 'case')}: {shown}" if rows else "nothing was counted"
    return WorkReport(status=status, headline=headline, counts=counts, rows=rows)


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
        status=_status(verdict.outcome) if one.saved is None else Status.GREEN,
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


def _status(outcome: Outcome) -> Status:
    """Return the status that the test of the case ends with: it fails, skips or passes."""
    if outcome is Outcome.REGRESSION:
        return Status.RED
    return Status.GREEN if outcome in (Outcome.PASS, Outcome.IMPROVEMENT) else Status.UNDECIDED


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
    return StepFigures(
        operations=sum(one.count for one in work.operations),
        bytes=sum(one.read + one.written for one in work.operations),
        flops=sum(one.flops for one in work.operations),
        host_reads=host_reads(work),
        collectives=len(work.collectives),
        collective_bytes=sum(one.bytes for one in work.collectives),
        allocations=work.memory.allocations,
        peak=work.memory.peak,
    )


# GitHub's annotations of the lines that do more work than what is stored.


_Line = tuple[str, int]  # file and number
_Finding = tuple[WorkRow, ChangeRow | None]


def work_annotation_lines(report: WorkReport, roots: Sequence[Path], repository: Path) -> list[str]:
    """Return a command for each line of the source that a red case has more work at.

    A line that many cases have in common is annotated once, and so is a case without such a line.
    ``roots`` are the directories that files are imported from. GitHub shows at most ten.
    """
    found: dict[_Line, list[_Finding]] = {}
    alone: list[str] = []
    for row in report.of(Status.RED):
        places = list(_grown(row))
        for line, change in places:
            found.setdefault(line, []).append((row, change))
        if not places:
            alone.append(error_line(_message([(row, None)]), title=_title(row)))
    lines = [
        error_line(
            _message(members),
            file=_in_repository(file, roots, repository),
            line=str(line),
            title=_title(members[0][0]),
        )
        for (file, line), members in found.items()
    ]
    return [*lines, *alone][:MOST]


def _grown(row: WorkRow) -> Iterator[tuple[_Line, ChangeRow]]:
    """Yield the line of each change that has one.

    It is an edited line, first the one that the change is at; else where most of the work is added.
    """
    edited = [(site.file, site.line) for site in row.lines]
    for one in row.changes:
        added = [(at.site.file, at.site.line) for at in one.change.places if at.count > 0]
        at_edited = [line for line in edited if line in added]
        if found := [*at_edited, *edited, *added] if grows(one.change) else []:
            yield found[0], one


def _title(row: WorkRow) -> str:
    return f"{row.verdict}: {row.case}"


def _message(members: Sequence[_Finding]) -> str:
    """Return the options and changes of the first case, how many others have them, and its cost."""
    row = members[0][0]
    texts = [change.text for of, change in members if of is row and change is not None]
    others = len({of.case for of, _ in members}) - 1
    parts = [f"changed option: {option}" for option in row.options]
    parts += texts or [row.reason]
    if others:
        parts.append(f"and in {counted(others, 'other case')}")
    parts += [f"the case: {cost_text(cost)}" for cost in row.costs[:1]]
    return "; ".join(parts)


def _in_repository(file: str, roots: Sequence[Path], repository: Path) -> str:
    """Return the file's path from the root of the repository; as it is if it is not in there."""
    for root in roots:
        path = (root / file).resolve()
        if path.is_file() and path.is_relative_to(repository.resolve()):
            return path.relative_to(repository.resolve()).as_posix()
    return file


# ``work.md``: the verdicts on counted steps and each finding with its line, for a pull request.


_MOST_ROWS = 200  # GitHub cuts a job's summary off at 1 MiB
_MOST_CASES = 20
_MOST_CHANGES = 10  # of a case


def work_markdown(report: WorkReport) -> str:
    """Return the status, the cases that are not green with their findings, and all cases."""
    lines = [f"## {SIGNS[report.status]} Work: {report.status.value}, {report.headline}", ""]
    shown = [*report.of(Status.RED), *report.of(Status.UNDECIDED)]
    for row in shown[:_MOST_CASES]:
        lines += [*_case_lines(row), ""]
    if len(shown) > _MOST_CASES:
        lines += [f"… and {len(shown) - _MOST_CASES} more cases: see work.html", ""]
    if any(row.costs for row in report.rows):
        lines += [MODELLED, ""]
    lines += ["<details><summary>all cases</summary>", "", *_table(report.rows), "", "</details>"]
    return "\n".join(lines) + "\n"


def _case_lines(row: WorkRow) -> list[str]:
    """Return the verdict on a case, its likely causes, its cost, and each change with its place."""
    escaped = markdown_escaped
    lines = [f"**{escaped(row.case)}**: {escaped(row.verdict)}, {escaped(row.reason)}"]
    lines += [f"- edited line: {escaped(place_text(site))}" for site in row.lines[:MOST_LINES]]
    lines += [f"- changed option: {escaped(option)}" for option in row.options]
    lines += [f"- {escaped(cost_text(cost))}" for cost in row.costs]
    lines += [_change_line(one) for one in row.changes[:_MOST_CHANGES]]
    if len(row.changes) > _MOST_CHANGES:
        lines.append(f"- … and {len(row.changes) - _MOST_CHANGES} more changes: see work.html")
    return lines


def _change_line(row: ChangeRow) -> str:
    text = markdown_escaped(row.text)
    if row.change.phase is not None and row.change.moved_from is None:
        text += f", in {row.change.phase}"
    if row.cost_s:
        costs = (f"{signed_ms(cost)} ms on {key.upper()}" for key, cost in row.cost_s.items())
        text += f"; modelled: {markdown_escaped(', '.join(costs))}"
    for place in row.change.places[:1]:
        text += f"; at {markdown_escaped(place_text(place.site))}"
    return f"- {text}"


def _table(rows: Sequence[WorkRow]) -> list[str]:
    lines = ["| case | verdict | operations | bytes | FLOPs | collectives | peak bytes |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for row in rows[:_MOST_ROWS]:
        figures = row.after
        numbers = (
            ("–",) * 5
            if figures is None
            else (
                f"{figures.operations:,}",
                f"{figures.bytes:,}",
                f"{figures.flops:,}",
                f"{figures.collectives:,}",
                f"{figures.peak:,}",
            )
        )
        cells = (markdown_escaped(row.case), markdown_escaped(row.verdict), *numbers)
        lines.append(f"| {' | '.join(cells)} |")
    if len(rows) > _MOST_ROWS:
        lines += ["", f"… and {len(rows) - _MOST_ROWS} more: see work.json"]
    return lines
