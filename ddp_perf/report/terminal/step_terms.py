"""The scaling of a case in words, advice, and the terms of its step."""

from __future__ import annotations

import statistics

from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.metric import PEAK_MEMORY
from ddp_perf.diagnose.advice import Advice, Measured, advise, label
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names
from ddp_perf.render.units import ABSENT, milliseconds, percent
from ddp_perf.session.figures import case_figures
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.step.decomposition import typical_step


def advice_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return the label and a line for each advice, or no line without probed launches."""
    measured = measured_of(result, case_id)
    if measured is None:
        return []
    lines = []
    if measured.efficiency is not None:
        name = label(measured.efficiency, measured.ranks)
        lines.append(f"{name}: {measured.efficiency:.0%} efficiency on {measured.ranks} ranks")
    return [*lines, *map(_line, advise(measured))]


def measured_of(result: SuiteResult, case_id: str) -> Measured | None:
    """Return the input of the advice rules, or None if no launch was probed."""
    figures, rows = case_figures(result, case_id), result.summaries.get(case_id, ())
    step = typical_step(rows)
    if figures is None or step is None:
        return None
    measurement = result.measurements[case_id]
    structure = measurement.launches[0].ranks[0].structure
    assert structure is not None  # every probed launch has one
    case = measurement.case
    return Measured(
        strategy=case.strategy,
        hook=case.comm_hook.kind if case.comm_hook else None,
        accumulation=case.gradient_accumulation,
        ranks=case.world_size,
        efficiency=figures.scaling.efficiency if figures.scaling else None,
        step=step,
        message_bytes=[collective.bytes for collective in structure.collectives],
        peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in rows),
        gpu_memory=result.environment.gpu_memory,
        loads_data=case.data.num_workers is not None,
    )


def _line(advice: Advice) -> str:
    promise = "" if advice.factor is None else f" (modelled: at most {advice.factor:.2f} ×)"
    return f"- {advice.finding}: {advice.recommendation}{promise}"


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
    """Return a row for each case, in ms, or None if no launch was probed.

    ``rest`` is the timed step minus all terms, which are measured on later steps.
    """
    table = plain_table()
    table.add_column("ms a step", overflow="fold")
    for heading in (*_COLUMNS, "rest", "overlap"):
        table.add_column(heading, justify="right", no_wrap=True)
    names = short_names(result.summaries)
    for case_id, rows in result.summaries.items():
        found = typical_step(rows)
        figures = case_figures(result, case_id)
        if found is not None and figures is not None:
            table.add_row(names[case_id], *_row(found, figures.step_s))
    return "\n".join(rendered(table, max(width, NARROWEST))) if table.row_count else None


def _row(found: Decomposition, step_s: float) -> list[str]:
    values = {
        heading: milliseconds(sum(found.terms[term] for term in terms))
        for heading, terms in _COLUMNS.items()
    }
    if not found.sees_communication:
        values["comm."] = ABSENT
    rest = milliseconds(step_s - found.explained_s)
    return [*values.values(), rest, percent(found.hidden_share, 0)]


def rank_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return each rank's work, wait and straggler frequency, or no line for a single rank."""
    rows = result.summaries[case_id]
    found = typical_step(rows)
    if found is None or len(found.ranks) == 1:
        return []
    places = [rank.placement for rank in result.measurements[case_id].launches[-1].ranks]
    return [
        f"rank {place.rank} ({place.device}, {place.device_id}): works"
        f" {milliseconds(share.own_s)} ms, waits {milliseconds(share.waits_s)} ms,"
        f" last in {share.last_share:.0%} of the steps"
        for place, share in zip(places, found.ranks, strict=True)
    ]
