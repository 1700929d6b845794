"""GitHub's annotations of lines that do more work: than what is stored, or than side A."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ddp_perf.duel.values import Duel
from ddp_perf.render.model import Status
from ddp_perf.render.units import counted, percent_change
from ddp_perf.report.duel.report import reasons
from ddp_perf.report.duel.rows import DuelRow, duel_report
from ddp_perf.report.files.github import MOST, error_line
from ddp_perf.report.work_rows import ChangeRow, WorkReport, WorkRow
from ddp_perf.work.changes import grows
from ddp_perf.work.cost import cost_text
from ddp_perf.work.text import change_summary

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


# GitHub's annotations of the lines at which side B does more work than side A.


def duel_annotation_lines(duel: Duel, roots: Sequence[Path], repository: Path) -> list[str]:
    """Return a command for each such line of a case that is slower, and for each other such case.

    A case that fails on side B is one too. ``roots`` are the directories that files are imported
    from. GitHub shows at most ten.
    """
    report = duel_report(duel)
    red = tuple(map(_as_work, report.of(Status.RED)))
    work = WorkReport(status=report.status, headline=report.headline, counts={}, rows=red)
    return work_annotation_lines(work, roots, repository)


def _as_work(row: DuelRow) -> WorkRow:
    """Return the case in the form of the work gate, with its slow-down in the verdict."""
    step = row.step
    by = "" if step is None or step.verdict.ratio is None else percent_change(step.verdict.ratio)
    failures = [f"side {failed.side}: {failed.failure}" for failed in row.failures]
    work = () if failures else row.work or ()
    return WorkRow(
        suite=row.suite,
        case=row.case,
        ranks=row.ranks,
        status=row.status,
        verdict=f"{row.verdict} ({by})" if by and not failures else row.verdict,
        reason="; ".join(failures or reasons(row)),
        options=row.options,
        lines=row.lines,
        changes=tuple(ChangeRow(text=change_summary(one), change=one) for one in work),
    )
