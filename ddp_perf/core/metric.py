"""The gated metrics of a case. All are lower-is-better."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Case

# NVML's energy counter moves every 20 to 100 ms (PETSc's manual, PetscLogGpuEnergyMeter): in less
# time, what it has not counted yet would be more than some per cent.
SHORTEST_ENERGY_S = 2.5


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One figure a launch; the tolerance that goes with it is the case's own."""

    name: str
    title: str
    unit: str
    follows_machine: bool = False  # whether a slower machine shows in it: what the control tells
    timed: bool = True  # whether what disturbs a launch shows in it
    missing: str | None = None  # why a launch may have none, and the remedy; None: each has one


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
        "it takes GPUs with NVML's energy counter (from Volta on, no MIG slices), and launches of"
        f" {SHORTEST_ENERGY_S:g} s and more; raise steps, or set tolerances.energy: null"
    ),
)

METRICS: tuple[MetricSpec, ...] = (STEP_TIME, TAIL, EFFICIENCY, PEAK_MEMORY, ENERGY)
STRUCTURE = "structure"
MISSING_READINGS = {metric.name: metric.missing for metric in METRICS if metric.missing}
_CONTROLLED = frozenset(metric.name for metric in METRICS if metric.follows_machine)
_TIMED = frozenset(metric.name for metric in METRICS if metric.timed)


def is_controlled(metric: str) -> bool:
    """Whether the control may explain a part of this metric."""
    return metric in _CONTROLLED


def is_timed(metric: str) -> bool:
    """Whether the metric is worth nothing where the launches were disturbed."""
    return metric in _TIMED


def is_explained(metric: str) -> bool:
    """Whether the terms of a step say why it got worse."""
    return metric in (STEP_TIME.name, EFFICIENCY.name)


def gated_metrics(case: Case) -> list[str]:
    """The metrics of a case that its tolerances gate by statistics."""
    return [
        metric.name
        for metric in METRICS
        if case.tolerances.of(metric.name) is not None
        and (metric is not EFFICIENCY or case.single is not None)
    ]


_TITLES = {metric.name: metric.title for metric in METRICS}


def metric_title(metric: str) -> str:
    return _TITLES.get(metric, metric)
