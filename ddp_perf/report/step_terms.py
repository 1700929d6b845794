"""The scaling of a case in words, advice, and the terms of its step."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ddp_perf.core.case import Case, curve_label
from ddp_perf.core.decomposition import Decomposition
from ddp_perf.core.launch import RankResult, first_structure
from ddp_perf.core.metric import EFFICIENCY, PEAK_MEMORY, STEP_TIME
from ddp_perf.core.verdict import Outcome
from ddp_perf.diagnose.advice import Advice, Measured, advise, label
from ddp_perf.render.model import Cell, Column, Note, Part, Table, notes
from ddp_perf.render.units import ABSENT, counted, milliseconds, short_names
from ddp_perf.report.figures import HIDDEN, MEANINGS, SHOWN, hidden_share, shown_step, term_values
from ddp_perf.scaling.curves import ScalingCurve, measured_series
from ddp_perf.scaling.fit import Band
from ddp_perf.scaling.laws import first_invalid_point
from ddp_perf.scaling.prediction import amdahl_check
from ddp_perf.session.figures import case_figures
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.step_decomposition import typical_step
from ddp_perf.stats.summary import utilisation_figures

# The scaling of a case in words, advice, and the terms of its step.


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
            rank.script.micro_steps[1]
            if rank.script is not None
            else case.training.gradient_accumulation
        ),
        keeps_global_batch=_keeps_global_batch(result, case),
        ranks=case.world_size,
        efficiency=figures.scaling.efficiency if figures.scaling else None,
        step=step,
        message_bytes=[collective.bytes for collective in structure.collectives],
        peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in rows),
        gpu_memory=result.environment.gpu_memory,
        loads_data=case.script is not None or case.training.data.num_workers is not None,
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
    if case.training.comm_hook is not None:
        return case.training.comm_hook.kind
    logged = rank.ddp_logging.get("comm_hook") if case.script is not None else None
    return str(logged) if logged else None


def _line(advice: Advice) -> str:
    promise = "" if advice.factor is None else f" (modelled: at most {advice.factor:.2f} ×)"
    first, rest = advice.recommendation[0], advice.recommendation[1:]
    return f"- {advice.finding}. {first.upper()}{rest}{promise}"


_HOW = (
    "The terms of a step, in ms, are measured on steps after the timed ones. Communication costs a"
    f" step the sum of interference and exposed. Hidden: {HIDDEN}."
)
# A name of SHOWN that a narrow column breaks.
_BROKEN = {
    "forward": "for\u00adward",
    "backward": "back\u00adward",
    "interference": "inter\u00adference",
    "optimizer": "opti\u00admizer",
    "imbalance": "imbal\u00adance",
    "exposed": "ex\u00adposed",
}


def term_parts(result: SuiteResult) -> Iterator[Part]:
    """Yield the table of terms, if a launch was probed, and why those of a case are not shown."""
    table = term_table(result)
    if table.rows:
        yield Note(text=_HOW)
        yield table
    yield from notes(filter(None, (not_shown(result, case_id) for case_id in result.summaries)))


def term_table(result: SuiteResult) -> Table:
    """Return the terms of the step of each case that was probed, in ms, in the order of SHOWN."""
    rows = []
    for case_id in result.summaries:
        found, figures = _shown(result, case_id), case_figures(result, case_id)
        if found is None or figures is None:
            continue
        values = term_values(found, figures.step_s)
        cells = [Cell(_ms(values[name]), values[name]) for name in SHOWN]
        share = hidden_share(found)
        hidden = Cell(ABSENT if share is None else f"{share:.0%}", share)
        rows.append((Cell(case_id, case_id), *cells, hidden))
    terms = (Column(title=_BROKEN.get(name, name), meaning=MEANINGS[name]) for name in SHOWN)
    return Table(
        label="terms of a step",
        of_cases=True,
        columns=(
            Column(title="ms a step", words=True),
            *terms,
            Column(title="hid\u00adden", meaning=HIDDEN),
        ),
        rows=tuple(rows),
    )


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


# Amdahl's law at the end of a run: the serial fraction of each scaling curve, and its limit.
#
# `ddp-perf predict` fits the α-β model, which has more terms, and extrapolates.


def amdahl_lines(result: SuiteResult) -> list[str]:
    """Return a line for each curve that was measured at two world sizes or more."""
    curves, speedups = measured_series(result), _observed(result)
    names, lines, disturbed = short_names([curve.label for curve in curves]), [], 0
    for curve in curves:
        if first_invalid_point(curve.points) is None and (curve.label, _most(curve)) in speedups:
            lines.append(f"Amdahl's law, {names[curve.label]}: {_amdahl_line(curve, speedups)}")
        elif curve.left_out:
            disturbed += 1
    if disturbed:
        these = counted(disturbed, "curve")
        lines.append(f"Amdahl's law: {these} not fitted, because launches were disturbed")
    return lines


def _observed(result: SuiteResult) -> dict[tuple[str, int], float]:
    """Return the speed-up of each case that has one, by the label of its curve and its ranks."""
    found = {}
    for case_id, measurement in result.measurements.items():
        figures, ranks = case_figures(result, case_id), measurement.case.world_size
        if figures is not None and figures.scaling is not None:
            found[curve_label(case_id, ranks), ranks] = figures.scaling.speedup
    return found


def _amdahl_line(curve: ScalingCurve, speedups: dict[tuple[str, int], float]) -> str:
    check, most = amdahl_check(curve.points, (), strong=curve.strong), _most(curve)
    serial = check.parameters["serial fraction"]
    by_law = most / (1 + serial.value * (most - 1))
    observed = speedups[curve.label, most]
    if observed <= 1:
        slower = f"{counted(most, 'rank')} are not faster than one"
        return f"speed-up {observed:.2f} observed, {most} ideal; {slower}, which the law excludes"
    tested = " (2 points: no test of the law)" if len(curve.points) == 2 else ""
    return (
        f"serial fraction {_percents(serial)}, {_limit(check.limit)};"
        f" {counted(most, 'rank')}: speed-up {observed:.2f} observed, {by_law:.2f} by the law,"
        f" {most} ideal{tested}"
    )


def _most(curve: ScalingCurve) -> int:
    return max(point.world_size for point in curve.points)


def _percents(band: Band) -> str:
    value, low, high = (f"{100 * end:.3g}" for end in (band.value, band.low, band.high))
    return f"{value} % (90 % interval: {low} to {high} %)"


def _limit(limit: Band) -> str:
    """Return the limit, or what it is not below if the interval spans more than a decade."""
    if limit.high > 10 * limit.low:
        return f"no limit of the speed-up below {limit.low:.3g}"
    return f"speed-up never over {limit.value:.3g} ({limit.low:.3g} to {limit.high:.3g})"
