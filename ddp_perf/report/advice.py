"""How well a case scales, in words, and what would help, in lines."""

from __future__ import annotations

import statistics

from ddp_perf.core.metric import PEAK_MEMORY
from ddp_perf.diagnose.advice import Advice, Measured, advise, label
from ddp_perf.report.figures import case_figures
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.decomposition import typical


def advice_lines(result: SuiteResult, case_id: str) -> list[str]:
    """The label, then a line for each advice; empty where nothing supports one."""
    measured = measured_of(result, case_id)
    if measured is None:
        return []
    lines = []
    if measured.efficiency is not None:
        name = label(measured.efficiency, measured.ranks)
        lines.append(f"{name}: {measured.efficiency:.0%} efficiency on {measured.ranks} ranks")
    return [*lines, *map(_line, advise(measured))]


def measured_of(result: SuiteResult, case_id: str) -> Measured | None:
    """What the rules of advice look at; None where no launch looked into its steps."""
    figures, rows = case_figures(result, case_id), result.summaries.get(case_id, ())
    step = typical([row.decomposition for row in rows if row.decomposition is not None])
    if figures is None or step is None:
        return None
    measurement = result.measurements[case_id]
    structure = measurement.launches[0].ranks[0].structure
    assert structure is not None  # as all whose steps were looked into
    return Measured(
        ranks=measurement.case.world_size,
        efficiency=figures.scaling.efficiency if figures.scaling else None,
        step=step,
        message_bytes=[collective.bytes for collective in structure.collectives],
        peak_memory=statistics.median(row.values[PEAK_MEMORY.name] for row in rows),
        gpu_memory=result.environment.gpu_memory,
        loads_data=measurement.case.data.num_workers is not None,
    )


def _line(advice: Advice) -> str:
    promise = "" if advice.factor is None else f" (modelled: at most {advice.factor:.2f} ×)"
    return f"- {advice.finding}: {advice.recommendation}{promise}"
