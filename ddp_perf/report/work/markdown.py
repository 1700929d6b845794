"""``work.md``: the verdicts on counted steps and each finding with its line, for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_perf.report.files.markdown import SIGNS, markdown_escaped
from ddp_perf.report.verdicts import Status
from ddp_perf.report.work_rows import MODELLED, ChangeRow, WorkReport, WorkRow
from ddp_perf.work.cost import cost_text, signed_ms
from ddp_perf.work.text import MOST_LINES, place_text

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
