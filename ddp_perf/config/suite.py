"""The schema of a suite file in ``bench_configs/``, and the cases that it stands for."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Case, DdpOptions, Scalar, Schedule, Tier, Tolerances
from ddp_perf.core.data import DataOptions

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.\-]+$")]


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment: a workload over a matrix of world sizes and batch sizes."""

    suite: Annotated[Name, Meta(description="Name of the suite, shown in reports.")]
    variant: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.]*$",
            description="Added to the ids of the cases: tells two suites of one workload apart.",
        ),
    ] = ""
    description: Annotated[str, Meta(description="What it measures, and whose experiment.")] = ""
    tier: Annotated[
        Tier, Meta(description="gpu: CUDA and NCCL, one GPU a rank. cpu: gloo, one core a rank.")
    ]
    workload: Annotated[
        str,
        Meta(
            description="One of the suite's own (mlp, distilbert, text_transformer, resnet50, gpt),"
            " or your module:function.",
            pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$",
        ),
    ]
    model: Annotated[
        dict[str, Scalar], Meta(description="Arguments of the workload: sizes of the model.")
    ] = {}
    data: Annotated[DataOptions, Meta(description="Where batches come from.")] = DataOptions()
    ddp: Annotated[DdpOptions, Meta(description="Arguments of DistributedDataParallel.")] = (
        DdpOptions()
    )
    precision: Annotated[Literal["fp32"], Meta(description="Number format.")] = "fp32"
    world_sizes: Annotated[
        list[Count], Meta(min_length=1, description="Numbers of ranks to run with.")
    ]
    batch_sizes: Annotated[
        list[Count], Meta(min_length=1, description="Batch sizes per rank (weak scaling).")
    ]
    denominator: Annotated[
        Literal["no-ddp", "ddp-1"],
        Meta(
            description="What scaling is measured against at one rank: the plain module"
            " (no-ddp), or the module wrapped in DDP (ddp-1)."
        ),
    ] = "no-ddp"
    steps: Annotated[Count, Meta(description="Steps of a launch, warm-ups included.")] = 60
    warmup: Annotated[int, Meta(ge=0, description="First steps of a launch, kept apart.")] = 5
    launches: Annotated[
        Count, Meta(description="Fresh process groups per case: the sample size.")
    ] = 5
    start_deadline_s: Annotated[
        Seconds, Meta(description="Seconds until the first step must be done.")
    ] = 120
    step_deadline_s: Annotated[
        Seconds, Meta(description="Seconds a rank may go without progress after that.")
    ] = 60
    tolerances: Annotated[
        Tolerances, Meta(description="How much worse each metric may get before it matters.")
    ] = Tolerances()
    env: Annotated[
        dict[str, str], Meta(description="Environment of the ranks, read before torch is imported.")
    ] = {}


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A suite after the overrides of the command line, and how it differs from its file."""

    suite: Suite
    env: dict[str, str] = {}
    suffix: str = ""  # what the overrides changed, as in "-hidden_dim=512"
    ddp_suffix: str = ""  # likewise, of the cases with DDP alone


def cases_of(variant: Variant) -> list[Case]:
    """Every case of the matrix, batch size by batch size, one-rank cases first."""
    suite = variant.suite
    world_sizes = sorted(suite.world_sizes)
    return [
        _case(variant, world_size, batch_size)
        for batch_size, world_size in itertools.product(suite.batch_sizes, world_sizes)
    ]


def _case(variant: Variant, world_size: int, batch_size: int) -> Case:
    suite = variant.suite
    plain = _is_plain(suite, world_size)
    has_single = world_size > 1 and 1 in suite.world_sizes
    return Case(
        id=_case_id(variant, world_size, batch_size),
        suite=suite.suite,
        tier=suite.tier,
        workload=suite.workload,
        model=suite.model,
        data=suite.data,
        strategy="none" if plain else "ddp",
        ddp=None if plain else suite.ddp,
        precision=suite.precision,
        world_size=world_size,
        batch_size=batch_size,
        env={**suite.env, **variant.env},
        schedule=Schedule(
            steps=suite.steps,
            warmup=suite.warmup,
            launches=suite.launches,
            start_deadline_s=suite.start_deadline_s,
            step_deadline_s=suite.step_deadline_s,
        ),
        tolerances=suite.tolerances,
        single=_case_id(variant, 1, batch_size) if has_single else None,
    )


def _case_id(variant: Variant, world_size: int, batch_size: int) -> str:
    suite = variant.suite
    workload = suite.workload.replace(":", ".")
    plain = _is_plain(suite, world_size)
    strategy = "none" if plain else "ddp"
    suffix = f"-{suite.variant}" if suite.variant else ""
    suffix += variant.suffix if plain else variant.suffix + variant.ddp_suffix
    return f"{workload}-{strategy}-{suite.precision}-ws{world_size}-b{batch_size}{suffix}"


def _is_plain(suite: Suite, world_size: int) -> bool:
    """Whether a case is the module without DDP, that scaling is measured against."""
    return world_size == 1 and suite.denominator == "no-ddp"
