"""The fields of a suite file in ``bench_configs/``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ddp_perf.config.collectives import CollectivesSuite
from ddp_perf.config.common import Count, Experiment
from ddp_perf.config.scripts import ScriptSuite
from ddp_perf.core.case import Scalar, Tolerances
from ddp_perf.core.data import DataOptions
from ddp_perf.core.strategy import (
    AnyCommHook,
    DdpOptions,
    FsdpOptions,
    Precision,
    SuiteStrategy,
)


class GlobalBatches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batches that all ranks share: strong scaling."""

    sizes: Annotated[
        list[Count],
        Meta(min_length=1, description="Samples of a step, over all ranks and micro-steps."),
    ] = msgspec.field(name="global")


class Suite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite that trains a workload over a matrix of world sizes and batch sizes."""

    workload: Annotated[
        str,
        Meta(
            description="A built-in workload (mlp, distilbert, text_transformer, resnet50, gpt,"
            " llama), or your own as module:function.",
            pattern=r"^[A-Za-z_][\w.]*(:[A-Za-z_]\w*)?$",
        ),
    ]
    model: Annotated[
        dict[str, Scalar],
        Meta(description="Arguments of the workload, such as the sizes of the model."),
    ] = msgspec.field(default_factory=dict)
    data: Annotated[DataOptions, Meta(description="The source of the batches.")] = DataOptions()
    strategy: Annotated[
        SuiteStrategy,
        Meta(
            description="Strategy of the ranks: ddp (DistributedDataParallel), fsdp (FSDP2's"
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
            description="Communication hooks of DDP, with kind and arguments. Each makes a case of"
            " its own. null: DDP's own all-reduce.",
        ),
    ] = (None,)
    precision: Annotated[
        Precision,
        Meta(
            description="Number format: fp32; tf32 (fp32 with TF32 matrix products); fp16 or bf16"
            " (autocast, or FSDP's policy with gradients reduced in fp32). fp16 uses GradScaler."
        ),
    ] = "fp32"
    gradient_accumulation: Annotated[
        Count,
        Meta(
            description="Micro-steps of a step, each of batch_size samples per rank (a global batch"
            " is divided between them). The last one synchronises the gradients."
        ),
    ] = 1
    activation_checkpointing: Annotated[
        bool,
        Meta(
            description="Recompute the activations in the backward pass instead of keeping them,"
            " block by block, for the blocks that the workload names."
        ),
    ] = False
    compile: Annotated[
        bool,
        Meta(
            description="Apply torch.compile to the model; with FSDP, to each part that it gathers."
        ),
    ] = False
    cuda_graphs: Annotated[
        bool,
        Meta(
            description="Capture forward, loss, backward and gradient sync as one CUDA graph, and"
            " replay it in each step. The optimizer's step is not captured. Tier gpu only."
        ),
    ] = False
    cudnn_benchmark: Annotated[
        bool,
        Meta(
            description="Let cuDNN measure its algorithms for each size of convolution, and use the"
            " fastest (torch.backends.cudnn.benchmark). Tier gpu only."
        ),
    ] = False
    techniques: Annotated[
        dict[str, Any],
        Meta(
            description="Named changes of the options above, each with cases of its own beside the"
            " base: the suite without any. Reports show what each one gains. The fields of a table"
            " replace those of the suite one by one; comm_hook is a hook, or null."
        ),
    ] = msgspec.field(default_factory=dict)
    batch_sizes: Annotated[
        Annotated[list[Count], Meta(min_length=1)] | GlobalBatches,
        Meta(
            description="Batch sizes per rank (weak scaling), as in [8]; or samples of a step over"
            " all ranks and micro-steps (strong scaling), as in {global: [32]}."
        ),
    ]
    denominator: Annotated[
        Literal["no-ddp", "ddp-1"],
        Meta(
            description="The one-rank case that scaling is measured against: the plain module"
            " (no-ddp), or the module wrapped by the strategy (ddp-1)."
        ),
    ] = "no-ddp"
    tolerances: Annotated[Tolerances, Meta(description="The tolerated change of each metric.")] = (
        Tolerances()
    )
    price_per_gpu_hour: Annotated[
        Annotated[float, Meta(gt=0, le=1e6)] | None,
        Meta(description="Price per GPU-hour (tier cpu: per rank-hour). Reports then show cost."),
    ] = None
    epoch_samples: Annotated[
        Count | None,
        Meta(description="Samples of an epoch. With a price, reports show the cost of an epoch."),
    ] = None


AnySuite = Suite | CollectivesSuite | ScriptSuite
