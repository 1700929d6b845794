"""The figures in a suite's table: of training, or of a collective."""

from __future__ import annotations

from ddp_perf.core.case import Case
from ddp_perf.core.launch import Unit
from ddp_perf.core.metric import ENERGY
from ddp_perf.render.units import ABSENT, milliseconds, percent
from ddp_perf.session.figures import CaseFigures, case_figures
from ddp_perf.session.result import SuiteResult


def figure_headings(result: SuiteResult) -> list[str]:
    """Return the headings of the figures that the suite has."""
    if not result.trains:
        return ["call\nµs", "algbw\nGB/s", "busbw\nGB/s"]
    rates = [f"{_unit(result)}\n/s", f"a {device_of(result)}\n/s"]
    energy = ["J a\nsample"] if _has_energy(result) else []
    return ["step\nms", *rates, "speed-\nup", "effi-\ncy", "over-\nhead", *energy]


def device_of(result: SuiteResult) -> str:
    """Return what a rank of the suite runs on, in a word."""
    return "GPU" if result.tier == "gpu" else "rank"


def figure_cells(result: SuiteResult, case: Case) -> list[str]:
    """Return a cell for each heading, of a case that was measured."""
    figures = case_figures(result, case.id)
    assert figures is not None  # it was measured
    if not case.trains:
        return _of_call(figures)
    energy = [_energy(figures)] if _has_energy(result) else []
    return [*_of_training(figures, case), *energy]


def _of_training(figures: CaseFigures, case: Case) -> list[str]:
    scaling = figures.scaling
    return [
        milliseconds(figures.step_s),
        f"{figures.throughput:,.0f}",
        f"{figures.throughput / case.world_size:,.0f}",
        f"{scaling.speedup:.2f}" if scaling else ABSENT,
        percent(scaling.efficiency, 0) if scaling else ABSENT,
        percent(scaling.overhead_fraction, 0) if scaling else ABSENT,
    ]


def _of_call(figures: CaseFigures) -> list[str]:
    call = figures.call
    assert call is not None  # of a collective
    return [
        f"{call.call_s * 1e6:,.1f}",
        f"{call.algorithm_bytes_per_s / 1e9:.3g}",
        f"{call.bus_bytes_per_s / 1e9:.3g}",
    ]


def _has_energy(result: SuiteResult) -> bool:
    return any(ENERGY.name in row.values for rows in result.summaries.values() for row in rows)


def _energy(figures: CaseFigures) -> str:
    return ABSENT if figures.energy_j is None else f"{figures.energy_j:.3g}"


def _unit(result: SuiteResult) -> str:
    """Return the unit that the suite's workload counts. It is known after the first launch."""
    launches = [m.launches[0] for m in result.measurements.values() if m.launches]
    return launches[0].unit.name if launches else Unit().name
