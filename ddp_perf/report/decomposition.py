"""Where the time of a step goes: by case as a table, by rank in lines."""

from __future__ import annotations

from ddp_perf.core.decomposition import Decomposition
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


def rank_lines(result: SuiteResult, case_id: str) -> list[str]:
    """What each rank does of a step, and how often the others wait for it; none of one rank."""
    rows = result.summaries[case_id]
    found = typical([row.decomposition for row in rows if row.decomposition is not None])
    if found is None or len(found.ranks) == 1:
        return []
    places = [rank.placement for rank in result.measurements[case_id].launches[-1].ranks]
    return [
        f"rank {place.rank} ({place.device}, {place.device_id}): works {share.own_s * 1e3:.2f} ms,"
        f" waits {share.waits_s * 1e3:.2f} ms, last in {share.last_share:.0%} of the steps"
        for place, share in zip(places, found.ranks, strict=True)
    ]
