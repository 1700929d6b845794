"""GitHub's annotations of the lines at which side B does more work than side A."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ddp_perf.duel.values import Duel
from ddp_perf.render.units import percent_change
from ddp_perf.report.duel.phrases import reasons
from ddp_perf.report.duel.rows import DuelRow, duel_report
from ddp_perf.report.verdicts import Status
from ddp_perf.report.work.annotations import work_annotation_lines
from ddp_perf.report.work_rows import ChangeRow, WorkReport, WorkRow
from ddp_perf.work.text import change_summary


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
