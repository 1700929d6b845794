"""The fields of suite files: of training, of scripts and of collectives."""

from __future__ import annotations

import itertools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ddp_perf.config.formula import LONGEST_FORMULA, filled, result_of, sizes_in
from ddp_perf.config.targets import TargetEntries
from ddp_perf.core.case import Case, Fraction, Scalar, Schedule, StepTolerances, Tier, Tolerances
from ddp_perf.core.environment import LauncherName
from ddp_perf.core.strategy import (
    AnyCommHook,
    DdpOptions,
    FsdpOptions,
    Precision,
    SuiteStrategy,
)
from ddp_perf.core.subject import (
    BY_OPTIMIZER,
    FLOAT32,
    CollectiveKind,
    CollectiveStep,
    DataOptions,
    ScriptRun,
    calls_of,
    parse_size,
    size_text,
)
from ddp_perf.errors import ConfigError
from ddp_perf.render.units import counted

# The fields of every suite file, whether it trains or measures collectives.


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
            description='Patterns of ids, as in "*-b4096": of the cases that one matches, those'
            " with the most ranks that fit the machine are of the core, which every night gates."
            " The others rotate over a week (--ddp-rotate). Absent: all are of the core."
        ),
    ] = None
    targets: Annotated[
        TargetEntries,
        Meta(
            description="What the figures of the cases must be, whatever a baseline contains. Of"
            " several entries that fit a case, the first one applies."
        ),
    ] = []

    def schedule(self) -> Schedule:
        return Schedule(
            steps=self.steps,
            warmup=self.warmup,
            launches=self.launches,
            start_deadline_s=self.start_deadline_s,
            step_deadline_s=self.step_deadline_s,
        )


# The layout of a case: its number of nodes, and the part of its id that states it.


def node_count(world_size: int, ranks_per_node: int | None) -> int:
    """Return the nodes that a case has, with as many ranks on each; `check_layout` is before it.

    A case fills its first node before it has a second one. None: every case has one node.
    """
    return 1 if ranks_per_node is None else max(1, world_size // ranks_per_node)


def layout_name(world_size: int, nodes: int) -> str:
    """Return the part of an id: ``ws8`` on one node, ``ws16-2x8`` on two with 8 ranks each."""
    return f"ws{world_size}" + (f"-{nodes}x{world_size // nodes}" if nodes > 1 else "")


def check_layout(world_sizes: Iterable[int], ranks_per_node: int | None) -> None:
    """Raise ConfigError for the first world size that would leave a node with fewer ranks."""
    for world_size in world_sizes:
        if (
            ranks_per_node is not None
            and world_size > ranks_per_node
            and world_size % ranks_per_node
        ):
            raise ConfigError(
                f"world_sizes: {counted(world_size, 'rank')} cannot share nodes of"
                f" {ranks_per_node} ranks evenly; choose another --ddp-world-sizes or"
                " nproc_per_node of the cluster file"
            )


# Suite files of collectives, measured over a matrix of payload sizes and world sizes.


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
        CollectiveTolerances,
        Meta(description="The tolerated change of each metric."),
    ] = CollectiveTolerances()


def collective_cases(
    suite: CollectivesSuite, env: Mapping[str, str], suffix: str, ranks_per_node: int | None
) -> list[Case]:
    """Return the cases, ordered by collective, then payload, then world size."""
    sizes = sorted(map(parse_size, suite.sizes))
    return [
        _collective_case(
            suite, kind, payload, (world_size, node_count(world_size, ranks_per_node)), env, suffix
        )
        for kind, payload, world_size in itertools.product(
            suite.collectives, sizes, sorted(suite.world_sizes)
        )
    ]


def _collective_case(
    suite: CollectivesSuite,
    kind: CollectiveKind,
    payload: int,
    layout: tuple[int, int],
    env: Mapping[str, str],
    suffix: str,
) -> Case:
    world_size, nodes = layout
    parts = [
        kind,
        layout_name(world_size, nodes),
        size_text(payload),
        *filter(None, [suite.variant]),
    ]
    return Case(
        id="-".join(parts) + suffix,
        suite=suite.suite,
        tier=suite.tier,
        workload=kind,
        collective=CollectiveStep(kind=kind, payload=payload, calls=calls_of(payload)),
        strategy="none",
        precision="fp32",
        world_size=world_size,
        nodes=nodes,
        batch_size=None,
        env=dict(env),
        launcher=suite.launcher,
        schedule=suite.schedule(),
        tolerances=Tolerances(
            step_time=suite.tolerances.step_time,
            tail=suite.tolerances.tail,
            cpu_time=None,
            efficiency=None,
            peak_memory=None,
        ),
        single=None,
    )


def check_collectives(suite: CollectivesSuite) -> None:
    """Raise ConfigError for the first value that is not possible, with field and remedy."""
    for refusal in _refusals(suite):
        raise ConfigError(refusal)


def _refusals(suite: CollectivesSuite) -> Iterator[str]:
    if 1 in suite.world_sizes:
        yield "world_sizes: one rank has no other to exchange data with; take 2 or more"
    sizes = list(map(parse_size, suite.sizes))
    for size, world_size in itertools.product(sizes, suite.world_sizes):
        if sizes.count(size) > 1:
            yield f"sizes: {size_text(size)} is listed twice, so two cases have one id; remove one"
        if size % (FLOAT32 * world_size):
            yield (
                f"sizes: {size_text(size)} of float32 cannot be divided evenly among {world_size}"
                " ranks; choose another size or world size"
            )


# Suite files of scripts, which are measured as they are, over a matrix of sizes.


class ScriptTolerances(StepTolerances, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change of each metric that is tolerated, as a fraction. null: not gated.

    Losses are not gated: the seeds of a script are its own.
    """


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
            description="Its arguments, as texts. {world_size} and {batch_size} are replaced, in"
            " env too; for any other {name} write {{name}}."
        ),
    ] = msgspec.field(default_factory=list)
    batch_sizes: Annotated[
        list[Count],
        Meta(min_length=1, description="Values of {batch_size}: one case for each."),
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
            description="Let the script work in a copy of the working directory, made of links: it"
            " reads the files there, and what it writes is removed after each launch. false: in"
            " the directory itself."
        ),
    ] = True
    tolerances: Annotated[
        ScriptTolerances, Meta(description="The tolerated change of each metric.")
    ] = ScriptTolerances()


def script_cases(suite: ScriptSuite, suffix: str, ranks_per_node: int | None) -> list[Case]:
    """Return the cases, ordered by batch size, then world size."""
    return [
        _script_case(suite, world_size, batch_size, suffix, ranks_per_node)
        for batch_size, world_size in itertools.product(
            suite.batch_sizes, sorted(suite.world_sizes)
        )
    ]


def _script_case(
    suite: ScriptSuite,
    world_size: int,
    batch_size: int,
    suffix: str,
    ranks_per_node: int | None,
) -> Case:
    def case_id(ranks: int) -> str:
        layout = layout_name(ranks, node_count(ranks, ranks_per_node))
        parts = [as_name(run.name), layout, f"b{batch_size}", *filter(None, [suite.variant])]
        return "-".join(parts) + suffix

    run = script_run(suite, world_size, batch_size)
    has_single = world_size > 1 and 1 in suite.world_sizes
    return Case(
        id=case_id(world_size),
        suite=suite.suite,
        tier=suite.tier,
        workload=run.script,
        script=run,
        strategy="script",
        precision=None,
        world_size=world_size,
        nodes=node_count(world_size, ranks_per_node),
        batch_size=batch_size,
        env=filled_env(suite.env, world_size, batch_size),
        launcher=suite.launcher,
        schedule=suite.schedule(),
        tolerances=Tolerances(**msgspec.structs.asdict(suite.tolerances)),
        single=case_id(1) if has_single else None,
    )


def script_run(suite: ScriptSuite, world_size: int, batch_size: int) -> ScriptRun:
    """Return the run of a suite's script with these sizes. Raises ConfigError for its formulas."""
    sizes = {"world_size": world_size, "batch_size": batch_size}
    any_ranks = {"world_size": "{world_size}", "batch_size": batch_size}
    return ScriptRun(
        script=posixpath.normpath(suite.script),  # ./train.py is train.py
        args=_filled_args(suite, sizes),
        args_of_any_ranks=_filled_args(suite, any_ranks),
        env_of_any_ranks=tuple(
            (name, filled(f"env.{name}", text, any_ranks))
            for name, text in suite.env.items()
            if "world_size" in sizes_in(text)
        ),
        samples=result_of("samples_per_step", str(suite.samples_per_step), sizes),
        steps_by=suite.steps_by,
        scratch=suite.scratch,
    )


def _filled_args(suite: ScriptSuite, sizes: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(filled(f"args[{i}]", text, sizes) for i, text in enumerate(suite.args))


def filled_env(env: Mapping[str, str], world_size: int, batch_size: int) -> dict[str, str]:
    """Return the variables of a script's ranks with these sizes. Raises ConfigError."""
    sizes = {"world_size": world_size, "batch_size": batch_size}
    return {name: filled(f"env.{name}", text, sizes) for name, text in env.items()}


def takes_batch_size(suite: ScriptSuite) -> bool:
    """Return whether an argument or a variable of the script has the batch size."""
    return any("batch_size" in sizes_in(text) for text in [*suite.args, *suite.env.values()])


# The fields of a suite file in ``bench_configs/``.


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
