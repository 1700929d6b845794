"""``duel.md``, one comment of a pull request, and GitHub's annotations."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ddp_perf.duel.values import Duel
from ddp_perf.render.units import counted, describe_duration, percent_change
from ddp_perf.report.duel.rows import DuelReport, DuelRow, duel_report
from ddp_perf.report.duel.text import (
    SHORT_TITLES,
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
from ddp_perf.report.files.markdown import SIGNS, markdown_escaped
from ddp_perf.report.next_step import NextStep, Status
from ddp_perf.report.terminal.text import describe_launch_failure
from ddp_perf.report.work_rows import (
    ChangeRow,
    WorkReport,
    WorkRow,
    work_annotation_lines,
    work_markdown,
)
from ddp_perf.work.text import change_summary

# ``duel.md``: one comment of a pull request, which a later one of the same job replaces.


MARKER = "<!-- ddp-perf duel -->"  # the first line: a job finds its own comment by it
_MOST = 60_000  # characters: GitHub refuses a comment of more than 65,536
_MOST_OF_WORK = 25_000
_MOST_OF_TABLE = 15_000
_MOST_MISSING = 20
_MOST_DIFFERENCES = 30
_MOST_CHANGES = 5  # of the work of a case
_MOST_COMMAND = 4_000  # characters
_MOST_OUTPUT = 3_000  # characters of a failure, from its end
_MOST_LINE = 400  # characters: a label or a reason is shorter
_CUT = "… the rest did not fit: see duel.html"


def duel_markdown(duel: Duel, work: WorkReport | None = None) -> str:
    """Return the comment; with ``work``, the report of counted work is at its end.

    Folds that do not fit a comment are left out, and the comment states that.
    """
    report = duel_report(duel)
    beside = [] if work is None else [_folded_work(work)]
    blocks = ["\n".join([MARKER, *_head(report)]), "\n".join(_notes(report))]
    blocks += ["\n".join(_case(row, report)) for row in _by_urgency(report) if needs_detail(row)]
    blocks.append("\n".join(_environments(report)))
    shown = _fitting([block for block in blocks if block], _MOST - sum(map(len, beside)))
    return "\n\n".join([*shown, *beside]) + "\n"


def _fitting(blocks: Iterable[str], left: int) -> Iterator[str]:
    """Yield the blocks that fit, whole: half a fold would hide what comes after it."""
    left -= len(_CUT) + 5
    for block in blocks:
        left -= len(block) + 2
        if left < 0:
            yield _CUT
            return
        yield block


def _head(report: DuelReport) -> list[str]:
    """Return the outcome, the sides, the table, and the next command."""
    sides = f"{_line(report.b.label)} against {_line(report.a.label)}"
    lines = [
        f"## {SIGNS[report.status]} {report.verdict}: {sides}",
        "",
        f"{report.headline}; in {describe_duration(report.wall_s)}.",
    ]
    if report.ended is not None:
        lines += ["", f"**{report.ended[:1].upper()}{report.ended[1:]}.**"]
    lines += ["", *_table(report)]
    for one in report.missing[:_MOST_MISSING]:
        lines.append(f"- NOT COMPARED: {_line(f'{one.case_id}: {one.reason}')}")
    if more := len(report.missing) - _MOST_MISSING:
        lines += [f"- NOT COMPARED: {more} more: see duel.html"] if more > 0 else []
    for why, number in report.left_out.items():
        lines.append(f"- left out: {counted(number, 'case')}: {_line(why)}")
    return lines if report.next is None else [*lines, *_next(report.next)]


def _next(step: NextStep) -> list[str]:
    """Return the next command, unless it is too long: half a command is a wrong one."""
    lines = ["", f"Next: {_line(step.why)}"]
    if len(step.command) > _MOST_COMMAND:
        return [*lines, "", "The command is in duel.html."]
    return [*lines, "", f"<pre>{_verbatim(step.command)}</pre>"]


def _table(report: DuelReport) -> list[str]:
    """Return a row for each verdict that a reader must see, the worst cases first."""
    lines = ["| case | verdict | of | A | B | B ÷ A | interval | min. det. | pairs |"]
    lines.append("|---|---|---|--:|--:|--:|--:|--:|--:|")
    size = 0
    for place, row in enumerate(_by_urgency(report)):
        of_row = [f"| {' | '.join(map(_line, cells))} |" for cells in _cells(row)]
        size += sum(map(len, of_row))
        if size > _MOST_OF_TABLE:
            lines += ["", f"… and {counted(len(report.rows) - place, 'more case')}: see duel.html"]
            break
        lines += of_row
    return [*lines, ""]


def _cells(row: DuelRow) -> Iterator[list[str]]:
    sign = SIGNS[row.status]
    if not row.tabled:
        yield [row.case, f"{sign} {row.verdict}", *["–"] * 7]
    for place, one in enumerate(row.tabled):
        first = place == 0
        seen = one.verdict.minimum_detectable
        yield [
            row.case if first else "",
            f"{sign} {row.verdict}" if first else one.verdict.outcome.value,
            SHORT_TITLES.get(one.metric, one.metric) + ("" if one.decides else " (shown only)"),
            figure_text(one.metric, one.a),
            figure_text(one.metric, one.b),
            ratio_of(one),
            interval_of(one),
            "–" if seen is None else effect_text(seen),
            str(one.verdict.pairs),
        ]


def _by_urgency(report: DuelReport) -> list[DuelRow]:
    """Return the rows, red ones first."""
    order = list(SIGNS)
    return sorted(report.rows, key=lambda row: order.index(row.status))


def _notes(report: DuelReport) -> list[str]:
    seen = what_is_seen(report)
    notes = [*what_decides(report), *([] if seen is None else [seen]), certainty(report)]
    return [f"- {_line(note)}" for note in notes]


def _case(row: DuelRow, report: DuelReport) -> list[str]:
    """Return a fold with the reasons of a case, its failures, and what differs."""
    lines = [
        *reasons(row),
        *cause_lines(row, report, _MOST_CHANGES),
        *(f"side {side}: {text}" for side, text in row.disturbed.items()),
    ]
    seen = smallest_seen(row)
    if seen is not None:
        lines.append(f"a slow-down of {effect_text(seen)} is found nine times in ten")
    fold = [
        f"<details><summary>{_verbatim(row.case)}: {row.verdict}</summary>",
        "",
        *(f"- {_line(line)}" for line in lines),
        "",
    ]
    for failed in row.failures:
        text = describe_launch_failure(failed.failure, remark="")[-_MOST_OUTPUT:]
        fold += [f"side {failed.side}:", "", f"<pre>{_verbatim(text)}</pre>", ""]
    return [*fold, "</details>"]


def _environments(report: DuelReport) -> list[str]:
    differences = report.differences[:_MOST_DIFFERENCES]
    if not differences:
        return []
    lines = [f"- {_line(one)}" for one in differences]
    if more := len(report.differences) - len(differences):
        lines.append(f"- and {more} more: see duel.html")
    head = f"<details><summary>the environments differ ({len(report.differences)})</summary>"
    return [head, "", *lines, "", "</details>"]


def _folded_work(work: WorkReport) -> str:
    """Return the report of counted work, without its table of all cases if it is too long."""
    text = work_markdown(work).rstrip()
    if len(text) <= _MOST_OF_WORK:
        return text
    lines = text[: text.rindex("<details>")].splitlines()
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) > _MOST_OF_WORK:
            break
        kept.append(line)
    return "\n".join([*kept, "", "… see work.html"])


def _line(text: str) -> str:
    """Return a text in one line of limited length, with its markup escaped."""
    return markdown_escaped(text if len(text) <= _MOST_LINE else f"{text[:_MOST_LINE]}…")


def _verbatim(text: str) -> str:
    """Return a text for an HTML element, in which Markdown is not interpreted."""
    return html.escape(text, quote=False)


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
