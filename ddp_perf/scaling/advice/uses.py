"""Document 004's recommendations for each use. They are its advice, and were not measured here."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddp_perf.scaling.advice.plan import Plan
from ddp_perf.scaling.advice.step_model import PlanTime

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
