"""A plan: how to train a model on a number of GPUs, and the memory that it needs."""

from __future__ import annotations

from typing import Literal

import msgspec

from ddp_perf.core.strategy import Precision
from ddp_perf.scaling.advice.facts import MeasuredStep
from ddp_perf.stats.memory import Optimizer, RankMemory, Sharding, rank_memory

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
