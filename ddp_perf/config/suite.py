"""The schema of a suite file in ``bench_configs/``, and the cases that it stands for."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.config.collectives import CollectivesSuite, collective_cases
from ddp_perf.config.common import Count, Experiment
from ddp_perf.core.case import Case, Scalar, Tolerances
from ddp_perf.core.data import DataOptions
from ddp_perf.core.strategy import (
    AnyCommHook,
    DdpOptions,
    FsdpOptions,
    Precision,
    Strategy,
    changed_options,
)


class Suite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Training: a workload over a matrix of world sizes and batch sizes."""

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
    ] = msgspec.field(default_factory=dict)
    data: Annotated[DataOptions, Meta(description="Where batches come from.")] = DataOptions()
    strategy: Annotated[
        Strategy,
        Meta(
            description="What the ranks train by: ddp (DistributedDataParallel), fsdp (FSDP2's"
            " fully_shard), or none (the plain module, on one rank)."
        ),
    ] = "ddp"
    ddp: Annotated[DdpOptions, Meta(description="Arguments of DistributedDataParallel.")] = (
        DdpOptions()
    )
    fsdp: Annotated[FsdpOptions, Meta(description="Arguments of fully_shard.")] = FsdpOptions()
    comm_hooks: Annotated[
        tuple[AnyCommHook | None, ...],
        Meta(
            min_length=1,
            description="Communication hooks of DDP, as kind and arguments, each a case of its"
            " own; null: DDP's own all-reduce.",
        ),
    ] = (None,)
    precision: Annotated[
        Precision,
        Meta(
            description="Number format: fp32; tf32 (fp32 with TF32 matrix products); fp16 or bf16,"
            " by autocast, or by FSDP's policy with gradients reduced in fp32. fp16 with"
            " GradScaler."
        ),
    ] = "fp32"
    gradient_accumulation: Annotated[
        Count,
        Meta(
            description="Micro-steps of a step, each of batch_size samples a rank. Gradients are"
            " synchronised in the last one."
        ),
    ] = 1
    activation_checkpointing: Annotated[
        bool,
        Meta(
            description="Compute the activations of each block that the workload names again in"
            " the backward, instead of keeping them."
        ),
    ] = False
    compile: Annotated[
        bool, Meta(description="torch.compile the model; with FSDP, each part that it gathers.")
    ] = False
    cuda_graphs: Annotated[
        bool,
        Meta(
            description="Capture forward, loss, backward and gradient sync as one CUDA graph, and"
            " replay it in each step; the optimizer's step is not in it. Tier gpu only."
        ),
    ] = False
    cudnn_benchmark: Annotated[
        bool,
        Meta(
            description="Let cuDNN try its algorithms for each size of convolution, and keep the"
            " fastest (torch.backends.cudnn.benchmark). Tier gpu only."
        ),
    ] = False
    batch_sizes: Annotated[
        list[Count], Meta(min_length=1, description="Batch sizes per rank (weak scaling).")
    ]
    denominator: Annotated[
        Literal["no-ddp", "ddp-1"],
        Meta(
            description="What scaling is measured against at one rank: the plain module"
            " (no-ddp), or the module as the strategy wraps it (ddp-1)."
        ),
    ] = "no-ddp"
    tolerances: Annotated[
        Tolerances, Meta(description="How much worse each metric may get before it matters.")
    ] = Tolerances()
    price_per_gpu_hour: Annotated[
        Annotated[float, Meta(gt=0, le=1e6)] | None,
        Meta(description="Price of a GPU (cpu tier: a rank) for an hour; reports then show cost."),
    ] = None
    epoch_samples: Annotated[
        Count | None, Meta(description="Samples of an epoch; with a price, what an epoch costs.")
    ] = None


AnySuite = Suite | CollectivesSuite


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """A suite after the overrides of the command line, and how it differs from its file."""

    suite: AnySuite
    env: dict[str, str] = {}
    suffix: str = ""  # what the overrides changed, as in "-hidden_dim=512"
    ddp_suffix: str = ""  # likewise, of the cases with DDP alone


def cases_of(variant: Variant) -> list[Case]:
    """Every case of the matrix, batch size by batch size, one-rank cases first."""
    suite = variant.suite
    if isinstance(suite, CollectivesSuite):
        return collective_cases(suite, {**suite.env, **variant.env}, variant.suffix)
    world_sizes = sorted(suite.world_sizes)
    return [
        _case(suite, variant, world_size, batch_size, hook)
        for batch_size, world_size in itertools.product(suite.batch_sizes, world_sizes)
        for hook in (suite.comm_hooks if _strategy(suite, world_size) == "ddp" else [None])
    ]


def _case(
    suite: Suite, variant: Variant, world_size: int, batch_size: int, hook: AnyCommHook | None
) -> Case:
    strategy = _strategy(suite, world_size)
    has_single = world_size > 1 and 1 in suite.world_sizes
    return Case(
        id=_case_id(suite, variant, world_size, batch_size, hook),
        suite=suite.suite,
        tier=suite.tier,
        workload=suite.workload,
        model=suite.model,
        data=suite.data,
        strategy=strategy,
        ddp=suite.ddp if strategy == "ddp" else None,
        fsdp=suite.fsdp if strategy == "fsdp" else None,
        comm_hook=hook,
        precision=suite.precision,
        gradient_accumulation=suite.gradient_accumulation,
        activation_checkpointing=suite.activation_checkpointing,
        compile=suite.compile,
        cuda_graphs=suite.cuda_graphs,
        cudnn_benchmark=suite.cudnn_benchmark,
        world_size=world_size,
        batch_size=batch_size,
        env={**suite.env, **variant.env},
        schedule=suite.schedule(),
        tolerances=suite.tolerances,
        single=_case_id(suite, variant, 1, batch_size, hook) if has_single else None,
        price_per_gpu_hour=suite.price_per_gpu_hour,
        epoch_samples=suite.epoch_samples,
    )


def _case_id(
    suite: Suite, variant: Variant, world_size: int, batch_size: int, hook: AnyCommHook | None
) -> str:
    strategy = _strategy(suite, world_size)
    parts = [
        *(suite.workload.replace(":", "."), strategy, suite.precision),
        *(f"ws{world_size}", f"b{batch_size}"),
        *_option_names(suite, strategy, hook),
        *filter(None, [suite.variant]),
    ]
    overrides = variant.suffix + (variant.ddp_suffix if strategy == "ddp" else "")
    return "-".join(parts) + overrides


def _option_names(suite: Suite, strategy: Strategy, hook: AnyCommHook | None) -> list[str]:
    """What tells the case's options from the defaults: ``topk``, ``ratio=0.1``."""
    names = []
    if strategy == "fsdp":
        names += _values(suite.fsdp)
    if strategy == "ddp" and hook is not None:
        names += [hook.kind, *_values(hook)]
    if suite.gradient_accumulation > 1:
        names.append(f"accumulate{suite.gradient_accumulation}")
    if suite.activation_checkpointing:
        names.append("checkpoint")
    names += [
        name for name in ("compile", "cuda_graphs", "cudnn_benchmark") if getattr(suite, name)
    ]
    return names


def _values(options: msgspec.Struct) -> list[str]:
    return [f"{name}={value}".lower() for name, value in changed_options(options).items()]


def _strategy(suite: Suite, world_size: int) -> Strategy:
    """One rank is the plain module, unless scaling is measured against the wrapped one."""
    return "none" if world_size == 1 and suite.denominator == "no-ddp" else suite.strategy
