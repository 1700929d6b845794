"""The choice of a plan: what fits, what is fastest, and the least change that is efficient.

First the precision, then strategy and checkpointing by memory and time, then a half-precision
hook, a larger batch and gradient accumulation until the efficiency reaches that of the use.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from ddp_perf.core.strategy import Precision
from ddp_perf.render.units import counted, short_number
from ddp_perf.scaling.advice.facts import MeasuredStep
from ddp_perf.scaling.advice.plan import Goal, HalfHook, Plan, fits, plan_memory
from ddp_perf.scaling.advice.step_model import PlanTime, StepModel
from ddp_perf.scaling.advice.uses import Use, differences_from, use_of
from ddp_perf.scaling.fit import Band
from ddp_perf.stats.hardware import peak_flops
from ddp_perf.stats.memory import RankMemory, Sharding

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
