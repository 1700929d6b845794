"""The scaling of a case in words, advice, and the terms of its step."""

from __future__ import annotations

import statistics

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.launch import RankResult, first_structure
from ddp_perf.core.metric import EFFICIENCY, PEAK_MEMORY, STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.diagnose.advice import Advice, Measured, advise, label
from ddp_perf.render.tables import NARROWEST, plain_table, rendered, short_names, wrapped
from ddp_perf.render.units import ABSENT, milliseconds
from ddp_perf.report.terms import HIDDEN, SHOWN, hidden_share, shown_step, term_values
from ddp_perf.session.figures import case_figures
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.step_decomposition import typical_step
from ddp_perf.stats.utilisation import utilisation_figures


def advice_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return the label and a line for each advice, or no line without probed launches.

    A case that got slower has no label: no such case is "Good".
    """
    measured = measured_of(result, case_id)
    if measured is None:
        return []
    lines = []
    if measured.efficiency is not None and not _is_slower(result, case_id):
        name = label(measured.efficiency, measured.ranks)
        lines.append(f"{name}: {measured.efficiency:.0%} efficiency on {measured.ranks} ranks")
    return [*lines, *map(_line, advise(measured))]


def _is_slower(result: SuiteResult, case_id: str) -> bool:
    findings = [result.finding(case_id, metric.name) for metric in (STEP_TIME, EFFICIENCY)]
    return any(found and found.verdict.outcome is Outcome.REGRESSION for found in findings)


def measured_of(result: SuiteResult, case_id: str) -> Measured | None:
    """Return the input of the advice rules, or None if no launch has terms to show."""
    figures, rows = case_figures(result, case_id), result.summaries.get(case_id, ())
    step = _shown(result, case_id)
    if figures is None or step is None:
        return None
    measurement = result.measurements[case_id]
    rank = measurement.launches[0].ranks[0]
    structure = first_structure(measurement.launches)
    assert structure is not None  # the step was probed, which needs one
    case = measurement.case
    return Measured(
        is_script=case.script is not None,
        strategy=structure.strategy if case.script is not None else case.strategy,
        hook=_hook(case, rank),
        accumulation=(
            rank.script.micro_steps[1] if rank.script is not None else case.gradient_accumulation
        ),
        keeps_global_batch=_keeps_global_batch(result, case),
        ranks=case.world_size,
        efficiency=figures.scaling.efficiency if figures.scaling else None,
        step=step,
        message_bytes=[collective.bytes for collective in structure.collectives],
        peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in rows),
        gpu_memory=result.environment.gpu_memory,
        loads_data=case.script is not None or case.data.num_workers is not None,
        cores_share=utilisation_figures(measurement.launches).cores_share,
    )


def _keeps_global_batch(result: SuiteResult, case: Case) -> bool:
    """Return whether all ranks share one batch; a script's samples of a step show it."""
    if case.script is None:
        return case.global_batch is not None
    single = result.measurements.get(case.single) if case.single is not None else None
    return single is not None and single.case.samples_per_step == case.samples_per_step


def _hook(case: Case, rank: RankResult) -> str | None:
    """Return the communication hook that the suite states, or that DDP logged in a script."""
    if case.comm_hook is not None:
        return case.comm_hook.kind
    logged = rank.ddp_logging.get("comm_hook") if case.script is not None else None
    return str(logged) if logged else None


def _line(advice: Advice) -> str:
    promise = "" if advice.factor is None else f" (modelled: at most {advice.factor:.2f} ×)"
    return f"- {advice.finding}: {advice.recommendation}{promise}"


# Each name of SHOWN, broken where a narrow column needs it.
_HEADINGS = {
    **{name: name for name in SHOWN},
    "forward": "for-\nward",
    "backward": "back-\nward",
    "interference": "inter-\nference",
    "optimizer": "opti-\nmizer",
    "imbalance": "imbal-\nance",
    "exposed": "ex-\nposed",
}


def decomposition_table(result: SuiteResult, width: int) -> str | None:
    """Return a row for each case, in ms, what is hidden, and why terms are not shown.

    None: no launch was probed.
    """
    table = plain_table()
    table.add_column("ms a step", overflow="fold")
    for heading in _HEADINGS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    names = short_names(result.summaries)
    for case_id, cells in term_cells(result).items():
        table.add_row(names[case_id], *cells)
    notes = [note for case_id in result.summaries if (note := not_shown(result, case_id))]
    width = max(width, NARROWEST)
    if not table.row_count:
        return "\n".join(wrapped(notes, width)) if notes else None
    shares = [f"{name} {share}" for name, share in hidden_shares(result).items()]
    hidden = [f"hidden: {', '.join(shares)} ({HIDDEN})"] if shares else []
    return "\n".join([*rendered(table, width), *wrapped([*hidden, *notes], width)])


def not_shown(result: SuiteResult, case_id: str) -> str | None:
    """Return why the terms of a probed case are not shown; None if they are, or it has none."""
    step, figures = typical_step(result.summaries.get(case_id, ())), case_figures(result, case_id)
    if step is None or figures is None or _shown(result, case_id) is not None:
        return None
    return (
        f"{short_names(result.summaries)[case_id]}: no terms, since they are measured on later"
        f" steps, which took {milliseconds(step.step_s)} ms, and the timed ones"
        f" {milliseconds(figures.step_s)} ms"
    )


def _shown(result: SuiteResult, case_id: str) -> Decomposition | None:
    figures, rows = case_figures(result, case_id), result.summaries.get(case_id, ())
    return shown_step(rows, figures.step_s) if figures is not None else None


def term_cells(result: SuiteResult) -> dict[str, list[str]]:
    """Return a cell for each name of SHOWN, in ms, by the id of each case that was probed."""
    cells = {}
    for case_id in result.summaries:
        found, figures = _shown(result, case_id), case_figures(result, case_id)
        if found is not None and figures is not None:
            values = term_values(found, figures.step_s)
            cells[case_id] = [_ms(values[name]) for name in SHOWN]
    return cells


def hidden_shares(result: SuiteResult) -> dict[str, str]:
    """Return the share of its communication that a case hides, by the name of the case."""
    names = short_names(result.summaries)
    return {
        names[case_id]: f"{share:.0%}"
        for case_id in result.summaries
        if (found := _shown(result, case_id)) is not None
        if (share := hidden_share(found)) is not None
    }


def _ms(seconds: float | None) -> str:
    return ABSENT if seconds is None else milliseconds(seconds)


def rank_lines(result: SuiteResult, case_id: str) -> list[str]:
    """Return each rank's work, wait and straggler frequency, or no line for a single rank."""
    found = _shown(result, case_id)
    if found is None or len(found.ranks) == 1:
        return []
    launch = result.measurements[case_id].launches[-1]
    places = [rank.placement for rank in launch.ranks]
    return [
        f"rank {place.rank} ({place.device}, {place.device_id}"
        f"{f', {place.node_name}' if launch.has_several_nodes else ''}): works"
        f" {milliseconds(share.own_s)} ms, waits {milliseconds(share.waits_s)} ms,"
        f" last in {share.last_share:.0%} of the steps"
        for place, share in zip(places, found.ranks, strict=True)
    ]
