"""The modelled time of a plan: the measured step and link, scaled to another model and size."""

from __future__ import annotations

import functools

import msgspec
import numpy as np

from ddp_perf.core.collective import CollectiveKind
from ddp_perf.scaling.advice.facts import MeasuredStep
from ddp_perf.scaling.advice.plan import Goal, Plan
from ddp_perf.scaling.fit import Band, ScalingFit, fit_laws
from ddp_perf.scaling.laws import Law, alpha_beta_laws
from ddp_perf.scaling.shape import (
    MIB,
    Exchange,
    Piece,
    StepShape,
    ddp_shape,
    fsdp_shape,
    in_buckets,
)
from ddp_perf.stats.link.model import Topology
from ddp_perf.stats.memory import layers_of
from ddp_perf.stats.robust import Floats

# A backward is two forwards, and checkpointing adds one (Chen et al. 2016, arXiv:1604.06174).
_RECOMPUTED = 4 / 3
# Document 003, Phase 3: mixed precision gives 30 to 40 %. The lower end is used.
HALF_SPEEDUP = 1.3
_BUCKET_MB = 25  # PyTorch's default
_MOST_BUCKETS = 1024  # more make the sum longer and not another one


class PlanTime(msgspec.Struct, frozen=True, kw_only=True):
    """The modelled step of a plan, with 90 % bands."""

    step_s: Band
    samples_per_s: Band  # of all ranks
    efficiency: Band  # against one rank that trains by the same plan


class StepModel:
    """The step of any plan for a goal, by the fit of a measured curve.

    Compute is proportional to parameters × samples (6 FLOPs for each parameter and token: Kaplan
    et al. 2020, arXiv:2001.08361, section 2.1). Raises ValueError if the curve cannot be fitted.
    """

    def __init__(self, step: MeasuredStep, goal: Goal, topology: Topology) -> None:
        work = step.curve.work
        self._step, self._goal, self._topology = step, goal, topology
        self._fit: ScalingFit = fit_laws(alpha_beta_laws(work.shape, topology), step.curve.points)

    def time(self, plan: Plan) -> PlanTime:
        """Return the modelled time of a plan."""
        samples = self._goal.gpus * plan.samples
        step_s = self._fit.band(self._seconds(plan))
        return PlanTime(
            step_s=step_s,
            samples_per_s=Band(
                value=samples / step_s.value, low=samples / step_s.high, high=samples / step_s.low
            ),
            efficiency=self._fit.band(
                lambda law, terms: self._compute(plan) * terms[0] / self._seconds(plan)(law, terms)
            ),
        )

    def gain(self, plan: Plan, other: Plan) -> Band:
        """Return the throughput of a plan ÷ that of another one. Both have the same link."""
        one, two = self._seconds(plan), self._seconds(other)
        samples = plan.samples / other.samples
        return self._fit.band(lambda law, terms: samples * two(law, terms) / one(law, terms))

    def _compute(self, plan: Plan) -> float:
        """Return the compute of a step ÷ that of the measured step."""
        step, work = self._step, self._step.curve.work
        factor = plan.samples / ((work.batch_size or 1) * work.micro_steps)
        factor *= self._goal.parameters / step.parameters
        if plan.checkpointing != step.checkpointed:
            factor *= _RECOMPUTED if plan.checkpointing else 1 / _RECOMPUTED
        if plan.half != step.half:
            factor *= 1 / HALF_SPEEDUP if plan.half else HALF_SPEEDUP
        return factor

    def _seconds(self, plan: Plan) -> functools.partial[Floats]:
        laws = {
            (law.name, law.overlap): law
            for law in alpha_beta_laws(self._shape(plan), self._topology)
        }
        factors = np.array([self._compute(plan), 1.0, 0.5 if plan.hook else 1.0])[:, None]
        return functools.partial(_step_s, laws, factors, self._goal.gpus)

    def _shape(self, plan: Plan) -> StepShape:
        """Return the communication of a step: in bytes, or in shares of the measured gradients."""
        measured = self._step.curve.work.shape
        known = measured.payload_known
        wanted = self._goal.parameters
        gradients = 4 * wanted if known else wanted / self._step.parameters
        if plan.sharding == "ddp":
            cap = float(self._step.work.get("ddp.bucket_cap_mb", _BUCKET_MB)) * MIB
            buckets = [one.payload for one in measured.exchanges if one.kind == "all_reduce"]
            largest = max(cap, gradients / _MOST_BUCKETS, *buckets) if known else gradients
            shape = ddp_shape(in_buckets(gradients, largest), plan.micro_steps)
        else:
            layers = layers_of(wanted) if known else 1
            shape = fsdp_shape(_sharded_exchanges(plan, gradients / layers, layers))
        if known:
            return shape
        whole = Piece(spans=((0, len(shape.exchanges)),))  # nothing is known to be hidden
        return msgspec.structs.replace(shape, pieces=(whole,), payload_known=False)


def _step_s(
    laws: dict[tuple[str, float], Law], factors: Floats, ranks: int, law: Law, terms: Floats
) -> Floats:
    return laws[law.name, law.overlap].step_s(terms * factors, ranks)


def _sharded_exchanges(plan: Plan, unit: float, layers: int) -> list[Exchange]:
    """Return FSDP2's collectives of a step; gradients are reduced in FP32 in every precision.

    ZeRO-3 gathers each layer once more, for the backward. Each micro-step gathers anew.
    """
    gathered = unit / 2 if plan.half else unit
    gathers = layers * plan.micro_steps * (1 if plan.sharding == "zero2" else 2)
    kinds: list[tuple[CollectiveKind, float]] = [("all_gather", gathered)] * gathers
    kinds += [("reduce_scatter", unit)] * layers
    return [Exchange(kind=kind, payload=payload) for kind, payload in kinds]
