"""The gated metrics of a case. For all of them lower is better."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Case

# NVML's energy counter is updated every 20 to 100 ms (PETSc's manual, PetscLogGpuEnergyMeter). In
# a shorter time the energy that is not counted yet would be several per cent of the total.
SHORTEST_ENERGY_S = 2.5


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A metric: one figure for each launch. Its tolerance is part of the case."""

    name: str
    title: str
    unit: str
    follows_machine: bool = False  # a slower machine changes it, as it changes the control
    timed: bool = True  # a disturbance of a launch changes it
    missing: str | None = None  # why a launch may lack it, and the remedy; None: no launch lacks it


STEP_TIME = MetricSpec(name="step_time", title="step time", unit="s", follows_machine=True)
TAIL = MetricSpec(name="tail", title="tail (mean ÷ median step)", unit="ratio")
EFFICIENCY = MetricSpec(name="efficiency", title="scaling cost (step N ÷ step 1)", unit="ratio")
PEAK_MEMORY = MetricSpec(
    name="peak_memory", title="peak memory of a rank", unit="bytes", timed=False
)
ENERGY = MetricSpec(
    name="energy",
    title="energy per sample",
    unit="J",
    missing=(
        "it needs GPUs with NVML's energy counter (Volta or newer, no MIG slices), and launches of"
        f" at least {SHORTEST_ENERGY_S:g} s; raise steps, or set tolerances.energy: null"
    ),
)

METRICS: tuple[MetricSpec, ...] = (STEP_TIME, TAIL, EFFICIENCY, PEAK_MEMORY, ENERGY)
STRUCTURE = "structure"
MISSING_READINGS = {metric.name: metric.missing for metric in METRICS if metric.missing}
_CONTROLLED = frozenset(metric.name for metric in METRICS if metric.follows_machine)
_TIMED = frozenset(metric.name for metric in METRICS if metric.timed)


def is_controlled(metric: str) -> bool:
    """Return whether the control may explain a part of this metric."""
    return metric in _CONTROLLED


def is_timed(metric: str) -> bool:
    """Return whether the metric is worthless if the launches were disturbed."""
    return metric in _TIMED


def is_explained(metric: str) -> bool:
    """Return whether the terms of a step explain a change of this metric."""
    return metric in (STEP_TIME.name, EFFICIENCY.name)


def gated_metrics(case: Case) -> list[str]:
    """Return the names of the metrics that the case's tolerances gate by statistics."""
    return [
        metric.name
        for metric in METRICS
        if case.tolerances.of(metric.name) is not None
        and (metric is not EFFICIENCY or case.single is not None)
    ]


_TITLES = {metric.name: metric.title for metric in METRICS}


def metric_title(metric: str) -> str:
    return _TITLES.get(metric, metric)
