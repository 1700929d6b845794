"""The fields of suite files: of an experiment, and of its subject, which is one of three."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ddp_perf.config.formula import LONGEST_FORMULA, sizes_in
from ddp_perf.config.targets import TargetEntries
from ddp_perf.core.case import Fraction, Scalar, StepTolerances, Tier, Tolerances
from ddp_perf.core.environment import LauncherName
from ddp_perf.core.strategy import (
    AnyCommHook,
    DdpOptions,
    FsdpOptions,
    Precision,
    SuiteStrategy,
)
from ddp_perf.core.subject import BY_OPTIMIZER, CollectiveKind, DataOptions

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
_OF_NAMES = r"A-Za-z0-9_.\-"  # the characters of a name, as pytest -k accepts it
NAME_PATTERN = f"^[{_OF_NAMES}]+$"
Name = Annotated[str, Meta(pattern=NAME_PATTERN)]


def as_name(text: str) -> str:
    """Return the text with an underscore for what a name cannot have."""
    return re.sub(f"[^{_OF_NAMES}]+", "_", text)


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tier, the world sizes, the launches and the deadlines of a suite."""

    suite: Annotated[Name, Meta(description="Name of the suite, shown in reports.")]
    variant: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.]*$",
            description="Added to the ids of the cases, to distinguish two suites of one workload.",
        ),
    ] = ""
    description: Annotated[
        str, Meta(description="What the suite measures, and the experiment it follows.")
    ] = ""
    tier: Annotated[
        Tier,
        Meta(description="gpu: CUDA and NCCL, one GPU per rank. cpu: gloo, one core per rank."),
    ]
    world_sizes: Annotated[list[Count], Meta(min_length=1, description="Numbers of ranks.")]
    emulated: Annotated[
        list[Count],
        Meta(
            description="Numbers of ranks of further cases, of which one rank runs: its collectives"
            " take the time that network gives, and have no other rank."
        ),
    ] = msgspec.field(default_factory=list)
    network: Annotated[
        str | None,
        Meta(
            description="The links between the ranks of emulated cases, as in"
            " intra=1GB/s,intra_latency=50us (emulation.md)."
        ),
    ] = None
    steps: Annotated[Count, Meta(description="Steps of a launch, warm-ups included.")] = 60
    warmup: Annotated[int, Meta(ge=0, description="Unmeasured first steps of a launch.")] = 5
    launches: Annotated[
        Count,
        Meta(description="Launches of each case, each with fresh processes: the sample size."),
    ] = 5
    start_deadline_s: Annotated[
        Seconds, Meta(description="Seconds until the first step must end.")
    ] = 120
    step_deadline_s: Annotated[
        Seconds,
        Meta(description="Seconds without progress of a rank, afterwards, until it is ended."),
    ] = 60
    launcher: Annotated[
        LauncherName,
        Meta(
            description="What starts the ranks: forkserver on this machine, ssh on"
            " other hosts, or a job of Slurm or Kubernetes."
        ),
    ] = "forkserver"
    env: Annotated[
        dict[str, str], Meta(description="Environment of the ranks, read before torch is imported.")
    ] = {}
    core: Annotated[
        list[str] | None,
        Meta(
            description='Patterns of ids, as in "*-b4096". Of the cases that one matches, those'
            " with the most ranks that fit the machine are gated every night; the others rotate"
            " over a week (--ddp-rotate). Absent: all are gated."
        ),
    ] = None
    targets: Annotated[
        TargetEntries,
        Meta(
            description="What figures must be, whatever a baseline contains; of several entries"
            " that fit a case, the first one applies."
        ),
    ] = []


SizeText = Annotated[str, Meta(pattern="^[1-9][0-9]{0,3}(KiB|MiB|GiB)$")]


class CollectiveTolerances(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change of each metric that is tolerated, as a fraction. null: not gated."""

    step_time: Annotated[
        Fraction, Meta(description="Level of the calls of a step: the fastest of ten clean ones.")
    ] = 0.05
    tail: Annotated[
        Fraction | None, Meta(description="Mean step ÷ its level. It shows calls that stall.")
    ] = 0.05


class CollectivesSuite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite that measures collectives without a model: the link and its library."""

    collectives: Annotated[
        list[CollectiveKind],
        Meta(min_length=1, description="The collectives to call, on float32 values."),
    ]
    sizes: Annotated[
        list[SizeText],
        Meta(
            min_length=1,
            description="Payloads of a call, counted as in nccl-tests: bytes of the whole tensor"
            " (a reduce-scatter's input, an all-gather's output). Whole KiB, MiB or GiB.",
        ),
    ]
    tolerances: Annotated[
        CollectiveTolerances, Meta(description="The tolerated change of each metric.")
    ] = CollectiveTolerances()


class ScriptSuite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite that runs a training script as it is, over a matrix of world and batch sizes."""

    script: Annotated[
        str,
        Meta(
            description="The script that each rank runs, from the root of the project on, as in"
            " train.py; or a module, as in package.train.",
            pattern=r"^(.*[^/]\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)$",
        ),
    ]
    args: Annotated[
        list[str],
        Meta(
            description="Its arguments. {world_size} and {batch_size} are replaced, in env too; for"
            " any other {name} write {{name}}."
        ),
    ] = msgspec.field(default_factory=list)
    batch_sizes: Annotated[
        list[Count], Meta(min_length=1, description="Values of {batch_size}: one case for each.")
    ]
    samples_per_step: Annotated[
        Annotated[str, Meta(max_length=LONGEST_FORMULA)] | Count,
        Meta(
            description="Samples of a step over all ranks: a number, or a formula of {world_size}"
            " and {batch_size} with + - * // and brackets."
        ),
    ] = "{world_size} * {batch_size}"
    steps_by: Annotated[
        str,
        Meta(
            description="What ends a step. optimizer: a step of the first optimizer that steps."
            " module:function: the return of this function.",
            pattern=r"^(optimizer|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$",
        ),
    ] = BY_OPTIMIZER
    scratch: Annotated[
        bool,
        Meta(
            description="Run the script in a copy of the working directory, made of links: what it"
            " writes is removed after each launch. false: in the directory itself."
        ),
    ] = True
    tolerances: Annotated[
        StepTolerances,
        Meta(
            description="The tolerated change of each metric. Losses are not gated: the seeds of a"
            " script are its own."
        ),
    ] = StepTolerances()


class GlobalBatches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batches that all ranks share: strong scaling."""

    sizes: Annotated[
        list[Count],
        Meta(min_length=1, description="Samples of a step, over all ranks and micro-steps."),
    ] = msgspec.field(name="global")


class TrainingSuite(Experiment, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
            " is divided). The last one synchronises the gradients."
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
            description="Capture forward, loss, backward and gradient sync, without the optimizer,"
            " as one CUDA graph, and replay it in each step. Tier gpu only."
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
            " suite without any. Reports show what each one gains. comm_hook is a hook, or null."
        ),
    ] = msgspec.field(default_factory=dict)
    batch_sizes: Annotated[
        Annotated[list[Count], Meta(min_length=1)] | GlobalBatches,
        Meta(
            description="Batch sizes per rank (weak scaling), as in [8]; or of all ranks together"
            " (strong scaling), as in {global: [32]}."
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

    @property
    def sizes(self) -> list[int]:
        """The batch sizes, each of one rank or of all ranks."""
        batches = self.batch_sizes
        return batches.sizes if isinstance(batches, GlobalBatches) else batches


Suite = TrainingSuite | ScriptSuite | CollectivesSuite
# The field that only suites of a subject have: by default a suite trains a workload.
SUBJECTS: dict[str, type[Suite]] = {
    "workload": TrainingSuite,
    "collectives": CollectivesSuite,
    "script": ScriptSuite,
}


def takes_batch_size(suite: Suite) -> bool:
    """Return whether a batch size changes the cases: a collective has none, a script may ask."""
    if isinstance(suite, ScriptSuite):
        texts = [*suite.args, *suite.env.values()]
        return any("batch_size" in sizes_in(text) for text in texts)
    return isinstance(suite, TrainingSuite)
