"""The gated metrics of a case. For all of them lower is better."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.case import Case, Tier
from ddp_perf.core.target import EFFICIENCY_TARGET, TARGET_SPECS, TargetSpec, target_metric
from ddp_perf.core.target import PEAK_MEMORY as PEAK_MEMORY_TARGET

# NVML's energy counter is updated every 20 to 100 ms (PETSc's manual, PetscLogGpuEnergyMeter). In
# a shorter time the energy that is not counted yet would be several per cent of the total.
SHORTEST_ENERGY_S = 2.5


class MetricSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A metric: one figure for each launch. Its tolerance is part of the case."""

    name: str
    title: str
    unit: str
    follows_machine: bool = False  # a slower machine changes it, as it changes the control
    # What disturbs a launch for it: all that lengthens a step, a slow clock alone, or nothing.
    disturbed_by: Literal["waits", "clock", None] = "waits"
    has_stalls: bool = False  # it contains every stall, as the mean step does
    tier: Tier | None = None  # None: gated on both tiers
    explained: bool = False  # the terms of a step explain why it got worse
    # It compares with the one-rank launches of the same rounds.
    needs_single_rank: bool = False
    # For a ratio to the ideal step, which follows from that of one rank: the metric above the line.
    # The ratio is a regression only
    # if that metric got worse too.
    numerator: str | None = None
    # How much sessions differ, as the sd of the log, before a machine's own show it. Recorded on
    # shared two-core machines, of the most restless case. Of GPUs no sessions are known to this
    # project; the same is taken, which is wide for one machine, unless the metric has another value
    # for them.
    assumed_sd: float = 0.03
    assumed_sd_on_gpus: float | None = None
    missing: str | None = None  # why a launch may lack it, and the remedy; None: no launch lacks it

    def assumed_sd_of(self, tier: Tier) -> float:
        """Return what is assumed for a tier while too few sessions show how much they differ."""
        of_gpus = self.assumed_sd_on_gpus
        return self.assumed_sd if tier == "cpu" or of_gpus is None else of_gpus


STEP_TIME = MetricSpec(
    name="step_time",
    title="step time",
    unit="s",
    follows_machine=True,
    explained=True,
)
TAIL = MetricSpec(name="tail", title="tail (mean step ÷ its level)", unit="ratio", has_stalls=True)
EFFICIENCY = MetricSpec(
    name="efficiency",
    title="scaling cost (step ÷ ideal step)",
    unit="ratio",
    explained=True,
    assumed_sd=0.04,
    needs_single_rank=True,
    numerator=STEP_TIME.name,
)
PEAK_MEMORY = MetricSpec(
    name="peak_memory",
    title="peak memory of a rank",
    unit="bytes",
    disturbed_by=None,
    assumed_sd=0.01,
    # The peak of what the caching allocator gave out: a sum of tensors, each rounded up to 512
    # bytes, which the same steps repeat. What differs by launch, as cuDNN's choice of an algorithm
    # by its time, is in the spread of launches.
    assumed_sd_on_gpus=0.001,
)
CPU_TIME = MetricSpec(
    name="cpu_time",
    title="CPU time of a step",
    unit="s",
    follows_machine=True,
    disturbed_by="clock",
    tier="cpu",
    explained=True,
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

METRICS: tuple[MetricSpec, ...] = (STEP_TIME, TAIL, EFFICIENCY, CPU_TIME, PEAK_MEMORY, ENERGY)
STRUCTURE = "structure"
LOSS = "loss"
EXACT = (STRUCTURE, LOSS)  # judged without statistics: they take no part of the error rate
NODES = "nodes"  # of nodes that are measured one by one, each beside the others: not the code
MISSING_READINGS = {metric.name: metric.missing for metric in METRICS if metric.missing}


def _of_target(spec: TargetSpec) -> MetricSpec:
    return MetricSpec(
        name=target_metric(spec.name),
        title=f"{spec.title} target",
        unit="",
        disturbed_by=None if spec is PEAK_MEMORY_TARGET else "waits",
        has_stalls=spec.has_stalls,
        needs_single_rank=spec is EFFICIENCY_TARGET,
    )


TARGETS = tuple(map(_of_target, TARGET_SPECS.values()))  # judged without a baseline
_SPECS = {metric.name: metric for metric in (*METRICS, *TARGETS)}


def metric_spec(metric: str) -> MetricSpec:
    """Return the specification of a metric by its name; a bare one for those in `EXACT`."""
    return _SPECS.get(metric) or MetricSpec(name=metric, title=metric, unit="", disturbed_by=None)


def is_controlled(metric: str) -> bool:
    """Return whether the control may explain a part of this metric."""
    return metric_spec(metric).follows_machine


def is_explained(metric: str) -> bool:
    """Return whether the terms of a step explain why the metric got worse."""
    return metric_spec(metric).explained


def needs_single_rank(metric: str) -> bool:
    """Return whether the metric compares with the one-rank launches of the same rounds."""
    return metric_spec(metric).needs_single_rank


def is_target(metric: str) -> bool:
    """Return whether it is an absolute target, which no baseline judges."""
    return any(metric == target.name for target in TARGETS)


def gated_metrics(case: Case) -> list[str]:
    """Return the names of the metrics that the tolerances of a case gate by statistics."""
    return [
        metric.name
        for metric in METRICS
        if case.tolerances.of(metric.name) is not None
        and metric.tier in (None, case.tier)
        and (not metric.needs_single_rank or case.single is not None)
    ]


def metric_title(metric: str) -> str:
    return metric_spec(metric).title
