"""Where the time of a step goes, as a table; and why it got longer, in lines."""

from __future__ import annotations

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.explanation import Cause, Explanation
from ddp_perf.report.figures import case_figures
from ddp_perf.report.layout import NARROWEST, plain_table, rendered, short_names
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.decomposition import typical

_COLUMNS = {
    "data": ("data",),
    "forw.": ("forward",),
    "backw.": ("backward",),
    "optim.": ("optimizer",),
    "comm.": ("exposed", "interference"),
    "imbal.": ("imbalance",),
    "idle": ("idle",),
}


def decomposition_table(result: SuiteResult, width: int) -> str | None:
    """A row for each case, in ms; None where no launch looked into its steps.

    ``rest`` is the timed step without all the terms, which come from steps after it.
    """
    table = plain_table()
    table.add_column("ms a step", overflow="fold")
    for heading in (*_COLUMNS, "rest", "hidden"):
        table.add_column(heading, justify="right", no_wrap=True)
    names = short_names(list(result.summaries))
    for (case_id, rows), name in zip(result.summaries.items(), names, strict=True):
        found = typical([row.decomposition for row in rows if row.decomposition is not None])
        figures = case_figures(result, case_id)
        if found is not None and figures is not None:
            table.add_row(name, *_row(found, figures.step_s))
    return "\n".join(rendered(table, max(width, NARROWEST))) if table.row_count else None


def _row(found: Decomposition, step_s: float) -> list[str]:
    values = [sum(found.terms[term] for term in terms) for terms in _COLUMNS.values()]
    hidden = found.hidden_share
    return [
        *(f"{value * 1e3:.2f}" for value in (*values, step_s - found.explained_s)),
        "–" if hidden is None else f"{hidden:.0%}",
    ]


def explanation_lines(explanation: Explanation) -> list[str]:
    """The causes, one a line, the largest first."""
    change = f"{explanation.step_change_s * 1e3:+.2f} ms a step"
    if not explanation.causes:
        return [f"why: unexplained ({change}): no term of the step certainly changed"]
    return [f"why ({change}):", *(f"  {cause_line(cause)}" for cause in explanation.causes)]


def cause_line(cause: Cause) -> str:
    """By how much, how large a part of it, and what shows it."""
    return (
        f"{cause.kind} {cause.change_s * 1e3:+.2f} ms ({cause.share:.0%}):"
        f" {'; '.join(cause.evidence)}"
    )
