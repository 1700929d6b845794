"""The choice of a plan: what fits, what is fastest, and the least change that is efficient."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import msgspec
import numpy as np

from ddp_perf.core.strategy import Precision
from ddp_perf.core.subject import CollectiveKind
from ddp_perf.render.units import counted, short_number
from ddp_perf.scaling.advice.facts import MeasuredStep
from ddp_perf.scaling.fit import Band, ScalingFit, fit_laws
from ddp_perf.scaling.laws import (
    MIB,
    Exchange,
    Law,
    Piece,
    StepShape,
    alpha_beta_laws,
    ddp_shape,
    fsdp_shape,
    in_buckets,
)
from ddp_perf.stats.hardware import (
    Optimizer,
    RankMemory,
    Sharding,
    layers_of,
    peak_flops,
    rank_memory,
)
from ddp_perf.stats.link import Topology
from ddp_perf.stats.robust import Floats

# A plan: how to train a model on a number of GPUs, and the memory that it needs.


HalfHook = Literal["fp16", "bf16"]
# The share of a GPU's memory that a plan may fill: the rest is for the context of CUDA, buffers of
# NCCL, and fragmentation. It is a choice of this suite.
USABLE = 0.9
# Activations are layers × width (Korthikanti et al. 2022, arXiv:2205.05198, section 4.1), and
# parameters layers × width². At one aspect ratio the former grow as the latter to the power 2/3:
# from 125 million to 6.7 billion parameters 14 times (Brown et al. 2020, table 2.1).
_ACTIVATION_POWER = 2 / 3
# Document 004, Memory Optimization: checkpointing saves 67 % of the activations.
_KEPT_BY_CHECKPOINTS = 0.33
TITLES: dict[Sharding, str] = {
    "ddp": "DDP",
    "zero2": "FSDP ZeRO-2",
    "zero3": "FSDP ZeRO-3",
    "offload": "FSDP ZeRO-3 offload",
}


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the GPUs that the advice is for."""

    parameters: float
    gpus: int
    gpu_memory: float  # bytes
    optimizer: Optimizer = "adam"
    precision: Precision | None = None  # None: to be chosen


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to train."""

    sharding: Sharding
    checkpointing: bool = False
    hook: HalfHook | None = None
    precision: Precision
    batch_size: int  # per rank and micro-step
    micro_steps: int = 1

    @property
    def half(self) -> bool:
        return self.precision in ("fp16", "bf16")

    @property
    def samples(self) -> int:
        """Samples of a rank in a step."""
        return self.batch_size * self.micro_steps

    @property
    def title(self) -> str:
        """The choices in one line: ``DDP + checkpointing + bf16 hook``."""
        parts = [TITLES[self.sharding]]
        if self.checkpointing:
            parts.append("checkpointing")
        if self.hook is not None:
            parts.append(f"{self.hook} hook")
        return " + ".join(parts)


def plan_memory(plan: Plan, goal: Goal, step: MeasuredStep) -> RankMemory:
    """Return the memory of a rank, with the activations if the file shows them."""
    return rank_memory(
        goal.parameters,
        goal.gpus,
        plan.sharding,
        optimizer=goal.optimizer,
        half=plan.half,
        activations=_activation_bytes(plan, goal, step),
    )


def fits(memory: RankMemory, goal: Goal) -> bool:
    """Return whether the memory is within the usable part of a GPU's memory."""
    return memory.peak <= USABLE * goal.gpu_memory


def _activation_bytes(plan: Plan, goal: Goal, step: MeasuredStep) -> float | None:
    measured = step.activations.get("checkpoints" if plan.checkpointing else "all")
    if measured is None:
        plain = step.activations.get("all")
        if plain is None or not plan.checkpointing:
            return None
        measured = plain * _KEPT_BY_CHECKPOINTS
    ratio = goal.parameters / step.parameters
    element = (2 if plan.half else 4) / (2 if step.half else 4)
    return float(measured * plan.batch_size * ratio**_ACTIVATION_POWER * element)


# The modelled time of a plan: the measured step and link, scaled to another model and size.


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


# Document 004's recommendations for each use. They are its advice, and were not measured here.


DOCUMENT = "Multi-GPU Distributed Training - Benchmark Report: Recommendations"
MASSIVE = 100e9  # parameters


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One use of the document, with what it recommends and expects."""

    name: str
    gpus: tuple[int, int]
    sharded: bool  # FSDP, and not DDP
    strategy: str
    batch_size: tuple[int, int]  # of a GPU
    efficiency: tuple[float, float]
    further: str = ""


USES = (
    Use(
        name="research and development",
        gpus=(1, 4),
        sharded=False,
        strategy="DDP",
        batch_size=(32, 32),
        efficiency=(0.95, 1.0),
    ),
    Use(
        name="production, medium models",
        gpus=(8, 16),
        sharded=False,
        strategy="DDP",
        batch_size=(32, 64),
        efficiency=(0.88, 0.93),
        further="overhead below 15 %",
    ),
    Use(
        name="production, large models",
        gpus=(32, 64),
        sharded=True,
        strategy="FSDP",
        batch_size=(64, 128),
        efficiency=(0.75, 0.85),
        further="activation checkpointing",
    ),
    Use(
        name="massive scale",
        gpus=(128, 256),
        sharded=True,
        strategy="FSDP with CPU offload",
        batch_size=(64, 128),
        efficiency=(0.60, 0.70),
        further="full optimization suite",
    ),
)


def use_of(gpus: int, parameters: float) -> Use:
    """Return the use with these GPUs, or with the next more; over 100e9 parameters the last."""
    if parameters > MASSIVE:
        return USES[-1]
    return next((use for use in USES if gpus <= use.gpus[1]), USES[-1])


def differences_from(
    use: Use, plan: Plan, time: PlanTime | None, *, ddp_fits: bool
) -> Iterator[str]:
    """Yield each point in which the advice differs from the document's, or is not comparable."""
    if use.sharded != (plan.sharding != "ddp"):
        if use.sharded:
            why = "all states fit on each GPU"
        else:
            why = "DDP needs checkpoints and is slower" if ddp_fits else "DDP does not fit"
        yield f"strategy: it recommends {use.strategy}; here {why}"
    elif plan.sharding != "offload" and "offload" in use.strategy:
        yield "strategy: it recommends offload; here the model fits without"
    least, most = use.batch_size
    if not least <= plan.samples <= most:
        yield f"batch of a GPU: it recommends {_range(least, most)}; here {plan.samples}"
    if time is not None:
        low, high = use.efficiency
        if time.efficiency.high < low or time.efficiency.low > high:
            yield (
                f"efficiency: it expects {low:.0%} to {high:.0%}; the model gives"
                f" {time.efficiency.low:.0%} to {time.efficiency.high:.0%}"
            )


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


# The choice of a plan: what fits, what is fastest, and the least change that is efficient.
#
# First the precision, then strategy and checkpointing by memory and time, then a half-precision
# hook, a larger batch and gradient accumulation until the efficiency reaches that of the use.


_CLEARLY = 1.02  # a plainer plan is left only for more than this
_BATCHES = (1, 2, 4)  # × the measured batch
_MICRO_STEPS = (1, 2, 4, 8)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with its memory and time, and why it was not chosen."""

    plan: Plan
    memory: RankMemory  # modelled by formula; the activations scaled from a measurement
    fits: bool
    time: PlanTime | None  # None: it does not fit, or the host's part of it is not measured
    gain: Band | None = None  # throughput ÷ that of the recommended plan
    rejection: str = ""  # the reason; empty: it is the recommended plan


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """The recommended plan beside the others, and what the document says of this use."""

    goal: Goal
    step: MeasuredStep
    use: Use
    reaches: bool  # the least efficiency that the document expects of the use
    plan: Plan | None  # None: nothing fits
    candidates: tuple[Candidate, ...]
    reasons: tuple[str, ...]  # of each choice
    differences: tuple[str, ...]  # from the document's recommendation


class _Chooser:
    """The choice for one goal, with the models that it uses."""

    def __init__(self, step: MeasuredStep, goal: Goal, model: StepModel) -> None:
        self.step, self.goal, self.model = step, goal, model
        self.use = use_of(goal.gpus, goal.parameters)

    def fits(self, plan: Plan) -> bool:
        return fits(plan_memory(plan, self.goal, self.step), self.goal)

    def strategies(self, precision: Precision, batch_size: int) -> list[Plan]:
        """Return the plans of a batch that differ in where the states are, the plainest first."""
        shardings: Sequence[Sharding] = get_args(Sharding) if self.goal.gpus > 1 else ("ddp",)
        return [
            Plan(
                sharding=sharding,
                checkpointing=checkpointing,
                precision=precision,
                batch_size=batch_size,
            )
            for sharding, checkpointing in itertools.product(shardings, (False, True))
        ]

    def first(self, precision: Precision) -> Plan | None:
        """Return the strategy at the largest batch up to the measured one: DDP if it fits.

        Else it is the fastest that fits; a plainer one is left only if the other one is faster
        beyond the 90 % band. How FSDP overlaps is assumed, and not in a measurement of DDP.
        """
        batch_size = self.step.curve.work.batch_size or 1
        while True:
            fitting = [p for p in self.strategies(precision, batch_size) if self.fits(p)]
            timed = [plan for plan in fitting if plan.sharding != "offload"]
            if timed or batch_size == 1:
                break
            batch_size //= 2
        best = next(iter(timed or fitting), None)
        if best is not None and best.sharding == "ddp" and not best.checkpointing:
            return best
        for plan in timed[1:]:
            if best is not None and self.model.gain(plan, best).low > _CLEARLY:
                best = plan
        return best

    def tuned(self, plan: Plan) -> Iterator[Plan]:
        """Yield changes of a plan that cost communication less, the plainest first.

        With FSDP each micro-step gathers again and the gradients stay unsharded: no accumulation.
        """
        is_ddp = plan.sharding == "ddp"
        hooks: Sequence[HalfHook | None] = (None, self.hook(plan)) if is_ddp else (None,)
        batches, counts = self.searched(plan)
        for micro_steps in counts:
            for factor, hook in itertools.product(batches, hooks):
                changed = msgspec.structs.replace(
                    plan,
                    hook=hook,
                    batch_size=plan.batch_size * factor,
                    micro_steps=micro_steps,
                )
                if self.fits(changed):
                    yield changed

    def searched(self, plan: Plan) -> tuple[Sequence[int], Sequence[int]]:
        """Return the factors of the batch, and the micro-steps, that are tried."""
        return (
            _BATCHES if self.step.activations else _BATCHES[:1],
            _MICRO_STEPS if plan.sharding == "ddp" else _MICRO_STEPS[:1],
        )

    def hook(self, plan: Plan) -> HalfHook:
        """Return the half format of the gradients: bf16 where the GPU is known to have it."""
        has_bf16 = plan.precision == "bf16" or peak_flops(self.step.accelerator, "bf16") is not None
        return "bf16" if has_bf16 and plan.precision != "fp16" else "fp16"

    def chosen(self) -> Plan | None:
        """Return the recommended plan, or None if nothing fits."""
        plan = self.first(self.precision())
        if plan is None or plan.sharding == "offload" or self.goal.gpus == 1:
            return plan
        best, best_efficiency = plan, 0.0
        for changed in self.tuned(plan):
            efficiency = self.model.time(changed).efficiency.value
            if efficiency >= self.use.efficiency[0]:
                return changed
            if efficiency > best_efficiency:
                best, best_efficiency = changed, efficiency
        return best

    def precision(self) -> Precision:
        """Return the asked precision, else the half precision of the GPU, else the measured one."""
        if self.goal.precision is not None:
            return self.goal.precision
        for half in ("bf16", "fp16"):
            if peak_flops(self.step.accelerator, half) is not None:
                return half
        return self.step.precision

    def ddp_fits(self, plan: Plan) -> bool:
        """Return whether DDP fits at the plan's batch, with or without checkpoints."""
        same = self.strategies(plan.precision, plan.batch_size)
        return any(self.fits(one) for one in same if one.sharding == "ddp")

    def candidate(self, plan: Plan, recommended: Plan | None) -> Candidate:
        memory = plan_memory(plan, self.goal, self.step)
        timed = fits(memory, self.goal) and plan.sharding != "offload"
        comparable = timed and recommended is not None and recommended.sharding != "offload"
        gain = self.model.gain(plan, recommended) if comparable and recommended else None
        found = Candidate(
            plan=plan,
            memory=memory,
            fits=fits(memory, self.goal),
            time=self.model.time(plan) if timed else None,
            gain=gain,
        )
        return msgspec.structs.replace(found, rejection=self.rejection(found, recommended))

    def rejection(self, found: Candidate, recommended: Plan | None) -> str:
        """Return why a plan is not recommended; empty: it is."""
        plan = found.plan
        if plan == recommended:
            return ""
        if not found.fits:
            return "does not fit"
        if recommended is None or found.time is None or found.gain is None:
            return "time not modelled; for what fits nowhere else"
        least = self.use.efficiency[0]
        reaches = self.efficiency(recommended) >= least
        if found.time.efficiency.value < least and reaches:
            return f"below {least:.0%} efficiency"
        if plan.samples > recommended.samples and found.gain.value >= 1:
            enough = f"{least:.0%} is reached with fewer samples"
            return enough if reaches else "beyond the searched batch"
        if found.gain.low > 1 and reaches:
            return f"faster, but {least:.0%} is reached without"
        return "slower" if found.gain.high < 1 / _CLEARLY else "not clearly faster"

    def efficiency(self, plan: Plan) -> float:
        return self.model.time(plan).efficiency.value


def recommend(step: MeasuredStep, goal: Goal, model: StepModel) -> Recommendation:
    """Return the plan for the goal, with the candidates and the reasons of each choice."""
    chooser = _Chooser(step, goal, model)
    plan = chooser.chosen()
    base = plan or chooser.strategies(chooser.precision(), step.curve.work.batch_size or 1)[0]
    others = [
        msgspec.structs.replace(
            other,
            batch_size=base.batch_size,
            micro_steps=base.micro_steps if other.sharding == "ddp" else 1,
            hook=base.hook if other.sharding == "ddp" else None,
        )
        for other in chooser.strategies(base.precision, base.batch_size)
    ]
    if plan and plan.sharding != "offload":  # what offloads and checkpoints is the last resort
        others = [one for one in others if not (one.sharding == "offload" and one.checkpointing)]
    plans = [*([plan] if plan else []), *others, *(_variants(chooser, plan) if plan else ())]
    unique = [one for i, one in enumerate(plans) if one not in plans[:i]]
    candidates = tuple(chooser.candidate(one, plan) for one in unique)
    time = candidates[0].time if plan else None
    reaches = time is not None and time.efficiency.value >= chooser.use.efficiency[0]
    reasons = _reasons(chooser, plan) if plan else ()
    limits = _search_limits(chooser, plan) if plan and time and not reaches else ()
    return Recommendation(
        goal=goal,
        step=step,
        use=chooser.use,
        reaches=reaches,
        plan=plan,
        candidates=candidates,
        reasons=(*reasons, *limits),
        differences=tuple(
            differences_from(chooser.use, plan, time, ddp_fits=chooser.ddp_fits(plan))
        )
        if plan
        else (),
    )


def _variants(chooser: _Chooser, plan: Plan) -> Iterator[Plan]:
    """Yield the recommended plan with one choice changed."""
    if plan.sharding == "offload" or chooser.goal.gpus == 1:
        return
    if plan.sharding == "ddp":
        hook = None if plan.hook else chooser.hook(plan)
        yield msgspec.structs.replace(plan, hook=hook)
        yield msgspec.structs.replace(plan, micro_steps=1 if plan.micro_steps > 1 else 4)
    if chooser.step.activations:
        if plan.batch_size > 1:
            yield msgspec.structs.replace(plan, batch_size=plan.batch_size // 2)
        yield msgspec.structs.replace(plan, batch_size=plan.batch_size * 2)


def _reasons(chooser: _Chooser, plan: Plan) -> Iterator[str]:
    """Yield why each choice was made, with its modelled gain and the source of it."""
    goal, step = chooser.goal, chooser.step
    plainest = chooser.strategies(plan.precision, plan.batch_size)[0]
    if plan.sharding == "ddp":
        yield "strategy: all states fit on each GPU"
    else:
        memory = plan_memory(plainest, goal, step)
        yield (
            f"strategy: DDP without checkpoints needs {short_number(memory.peak / 1e9)} GB"
            f" (modelled: {sum_text(memory)}; the states by Rajbhandari et al. 2020, section 3.1)"
        )
    if plan.checkpointing:
        yield (
            "checkpointing: the activations do not fit without; 33 % more compute (Chen et al."
            " 2016: one more forward)"
        )
    if plan.half and not step.half:
        yield (
            f"precision {plan.precision}: 30 to 40 % faster by document 003, Phase 3 (its figure,"
            " not measured here); the states stay FP32"
        )
    if plan.hook is not None:
        gain = chooser.model.gain(plan, msgspec.structs.replace(plan, hook=None))
        yield f"hook {plan.hook}: {gain_text(gain)} throughput (modelled: half of the bytes)"
    measured = step.curve.work.batch_size or 1
    if plan.batch_size > measured:
        smaller = msgspec.structs.replace(plan, batch_size=measured)
        gain = chooser.model.gain(plan, smaller)
        yield f"batch {plan.batch_size} of {measured}: {gain_text(gain)} throughput (modelled)"
    elif plan.batch_size < measured:
        yield f"batch {plan.batch_size}: the measured one, {measured}, does not fit"
    if plan.micro_steps > 1:
        gain = chooser.model.gain(plan, msgspec.structs.replace(plan, micro_steps=1))
        yield (
            f"accumulation over {plan.micro_steps} micro-steps: {gain_text(gain)} throughput"
            " (modelled: gradients are exchanged once)"
        )


def _search_limits(chooser: _Chooser, plan: Plan) -> Iterator[str]:
    """Yield what was tried if no plan of it reaches the efficiency."""
    batches, counts = chooser.searched(plan)
    tried = f"up to {batches[-1]} × the batch" if len(batches) > 1 else "one batch"
    yield (
        f"no searched plan ({tried}, {counted(counts[-1], 'micro-step')}, checkpoints only where"
        f" memory needs them) reaches {chooser.use.efficiency[0]:.0%} efficiency on this link"
    )


def sum_text(memory: RankMemory) -> str:
    """Write the sum that is the peak, in GB: ``states 112 + lists of the optimizer's step 28``."""
    return " + ".join(f"{name} {short_number(size / 1e9)}" for name, size in memory.at_peak.items())


def gain_text(gain: Band) -> str:
    """Write the band of a ratio as changes: ``+5…+12 %``."""
    return f"{100 * (gain.low - 1):+.0f}…{100 * (gain.high - 1):+.0f} %"
