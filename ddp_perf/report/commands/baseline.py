"""Baseline files as text: their content, their differences, and the findings of an audit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from ddp_perf.core.baseline import Acknowledgement, Baseline, CaseBaseline, Rebaseline
from ddp_perf.core.metric import STEP_TIME, metric_title
from ddp_perf.render.model import CASE, Table, figures, words
from ddp_perf.render.terminal import Block
from ddp_perf.render.units import ABSENT, change_text, counted, milliseconds, percent_change
from ddp_perf.session.baseline_diff import BaselineDiff, CaseDiff, TableDiff
from ddp_perf.stats.plausibility import TableAudit
from ddp_perf.stats.stored_figures import CasesAudit

# Baseline files as text: their content, their differences, and their acknowledgements.


_FILES = (
    *words("accelerator"),
    *figures("cases", "sessions", "newest", "published figures", "acknow\u00adledged"),
)
_CASES = (CASE, *figures("sessions", "newest", "step ms", "since the first"))


def list_parts(baselines: Sequence[Baseline]) -> list[Block]:
    """Return a table with one row for each file."""
    return [Table.of_texts(_FILES, map(_file, baselines))]


def _file(baseline: Baseline) -> tuple[str, ...]:
    sessions = [session for case in baseline.cases.values() for session in case.sessions]
    return (
        baseline.accelerator,
        str(len(baseline.cases)),
        str(len(sessions)),
        max((session.date[:10] for session in sessions), default=ABSENT),
        str(sum(len(published.rows) for published in baseline.published)),
        str(len(baseline.acknowledged)),
    )


def show_parts(baseline: Baseline) -> list[Block]:
    """Return a table with one row for each case.

    A row has the case's sessions, its level, and the change since the first session saved.
    """
    cases = baseline.cases
    entries = [describe_acknowledgement(a) for a in baseline.acknowledged if a.case in cases]
    without = [case_id for case_id, case in cases.items() if case.sessions and not case.has_level]
    if without:
        entries.append(
            f"no level of the step yet, only other metrics: {', '.join(without)};"
            " --save-baseline=append adds a session with a level"
        )
    return [Table.of_texts(_CASES, itertools.starmap(_row, cases.items())), *entries]


def _row(case_id: str, case: CaseBaseline) -> tuple[str, ...]:
    level, first = case.level(STEP_TIME.name), case.first.get(STEP_TIME.name)
    return (
        case_id,
        str(len(case.sessions)),
        case.sessions[-1].date[:10] if case.sessions else ABSENT,
        milliseconds(level) if level else ABSENT,
        percent_change(level / first) if level and first else ABSENT,
    )


def log_lines(baselines: Sequence[Baseline]) -> list[str]:
    """Return every accepted change of a baseline, the oldest first."""
    entries = [
        (entry, case_id, baseline.accelerator)
        for baseline in baselines
        for case_id, case in baseline.cases.items()
        for entry in case.log
    ]
    entries.sort(key=lambda found: found[0].date)
    lines = [
        f"{entry.date[:10]} {case_id} on {accelerator}: {_size(entry)} at commit"
        f" {entry.commit or 'unknown'}: {entry.reason}"
        for entry, case_id, accelerator in entries
    ]
    return lines or ["no baseline was ever replaced"]


def diff_lines(diff: BaselineDiff) -> list[str]:
    """Return the differences case by case, the largest slow-down first."""
    lines = []
    if diff.accelerators[0] != diff.accelerators[1]:
        lines.append(f"the files are of two machines: {' and '.join(diff.accelerators)}")
    for case in sorted(diff.cases, key=_worst_first):
        lines += [f"{case.case_id}: {case.kind}", *(f"  {line}" for line in _case(case))]
    for table in diff.published:
        lines += [f"{table.name} ({table.document}): {table.kind}", *_table(table)]
    lines += [f"acknowledged: {describe_acknowledgement(a)}" for a in diff.acknowledged]
    lines += [f"no longer acknowledged: {describe_acknowledgement(a)}" for a in diff.withdrawn]
    return lines or ["no difference"]


def describe_acknowledgement(entry: Acknowledgement) -> str:
    """Return the acknowledgement in one line."""
    size = "" if entry.ratio is None else f", {percent_change(entry.ratio)}"
    return (
        f'{metric_title(entry.metric)} of {entry.case}{size} until {entry.until}: "{entry.reason}"'
    )


def _case(case: CaseDiff) -> Iterator[str]:
    for level in case.levels:
        title = metric_title(level.metric)
        moved = change_text(title, f"{level.old:.6g}", f"{level.new:.6g}")
        yield f"{moved} ({percent_change(level.ratio)})"
    if case.work:
        yield f"other work: {', '.join(case.work)}"
    if case.structure:
        yield f"other structure: {', '.join(case.structure)}"
    yield from case.fields
    if case.sessions[0] != case.sessions[1]:
        yield change_text("sessions", *case.sessions)
    if case.environment:
        yield f"newest session: {', '.join(case.environment)}"
    for entry in case.log:
        yield f"accepted on {entry.date[:10]}, {_size(entry)}: {entry.reason}"


def _size(entry: Rebaseline) -> str:
    return "unknown change" if entry.ratio is None else percent_change(entry.ratio)


def _table(table: TableDiff) -> Iterator[str]:
    return (f"  {line}" for line in (*table.fields, *table.rows))


def _worst_first(case: CaseDiff) -> tuple[float, str]:
    return -max((level.ratio for level in case.levels), default=0.0), case.case_id


# The findings of an audit of baseline files.


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of all files: in their published tables, and in their measured cases."""

    tables: tuple[TableAudit, ...]
    measured: tuple[CasesAudit, ...]

    @property
    def contradictions(self) -> int:
        of_tables = sum(len(audit.contradictions) for audit in self.tables)
        return of_tables + sum(len(audit.contradictions) for audit in self.measured)


def audit_lines(audit: Audit) -> list[str]:
    """Return each table and the measured cases of each file, with what contradicts itself."""
    of_tables = [(_table_title(one), one.contradictions) for one in audit.tables]
    of_cases = [
        (f"{one.file}: {counted(one.cases, 'measured case')}", one.contradictions)
        for one in audit.measured
    ]
    lines = [
        line
        for title, contradictions in (*of_tables, *of_cases)
        for line in (title, *(f"  {found}" for found in contradictions))
    ]
    rows = sum(len(table.table.rows) for table in audit.tables)
    cases = sum(measured.cases for measured in audit.measured)
    counts = [(len(audit.tables), "table"), (rows, "row"), (cases, "measured case")]
    total = ", ".join(itertools.starmap(counted, counts))
    return [*lines, f"{total}: {counted(audit.contradictions, 'contradiction')}"]


def _table_title(audit: TableAudit) -> str:
    table, kind = audit.table, "modelled" if audit.table.modelled else "published"
    return f"{audit.file}: {table.name} ({kind}: {table.document}; {table.where})"
