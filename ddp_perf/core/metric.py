"""The gated metrics of a case. All are lower-is-better."""

from __future__ import annotations

import msgspec

from ddp_perf.core.case import Case


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One figure a launch; the tolerance that goes with it is the case's own."""

    name: str
    title: str
    unit: str
    follows_machine: bool = False  # whether a slower machine shows in it: what the control tells
    timed: bool = True  # whether what disturbs a launch shows in it


STEP_TIME = MetricSpec(name="step_time", title="step time", unit="s", follows_machine=True)
TAIL = MetricSpec(name="tail", title="tail (mean ÷ median step)", unit="ratio")
EFFICIENCY = MetricSpec(name="efficiency", title="scaling cost (step N ÷ step 1)", unit="ratio")
PEAK_MEMORY = MetricSpec(
    name="peak_memory", title="peak memory of a rank", unit="bytes", timed=False
)

METRICS: tuple[MetricSpec, ...] = (STEP_TIME, TAIL, EFFICIENCY, PEAK_MEMORY)
STRUCTURE = "structure"
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
