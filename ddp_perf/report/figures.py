"""The figures of a case that every report shows: medians over its launches."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from ddp_perf.core.measurement import LaunchSummary
from ddp_perf.core.metric import ENERGY, STEP_TIME
from ddp_perf.session.result import SuiteResult
from ddp_perf.stats.scaling.weak import Scaling, weak_scaling


class CaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the launches of a case."""

    step_s: float
    p95_step_s: float
    throughput: float  # of ``unit``, per second, over all ranks
    unit: str
    energy_j: float | None  # per sample, of all GPUs; None: no launch has a reading
    scaling: Scaling | None  # None: one rank, or no one-rank leg was measured


def case_figures(result: SuiteResult, case_id: str) -> CaseFigures | None:
    """What the table and the test reports show; None when no launch was finished."""
    rows = result.summaries.get(case_id, ())
    if not rows:
        return None
    case = result.measurements[case_id].case
    step_s, throughput = _typical(rows)
    singles = result.summaries.get(case.single, ()) if case.single else ()
    scaling = None
    if singles:
        single_s, single_throughput = _typical(singles)
        scaling = weak_scaling(
            world_size=case.world_size,
            throughput=throughput,
            single_throughput=single_throughput,
            step_s=step_s,
            single_s=single_s,
        )
    return CaseFigures(
        step_s=step_s,
        p95_step_s=statistics.median(row.p95_step_s for row in rows),
        throughput=throughput,
        unit=result.measurements[case_id].launches[0].unit.name,
        energy_j=_energy_j(rows),
        scaling=scaling,
    )


def _typical(rows: Sequence[LaunchSummary]) -> tuple[float, float]:
    """Step time in seconds and throughput per second: medians over the launches."""
    step_s = statistics.median(row.values[STEP_TIME.name] for row in rows)
    return step_s, statistics.median(row.throughput for row in rows)


def _energy_j(rows: Sequence[LaunchSummary]) -> float | None:
    readings = [row.values[ENERGY.name] for row in rows if ENERGY.name in row.values]
    return statistics.median(readings) if readings else None
