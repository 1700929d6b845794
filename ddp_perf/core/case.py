"""A case: one configuration of training, or of a collective, with all its options resolved."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ddp_perf.core.environment import LauncherName
from ddp_perf.core.strategy import AnyCommHook, DdpOptions, FsdpOptions, Precision, Strategy
from ddp_perf.core.subject import CollectiveStep, DataOptions, ScriptRun
from ddp_perf.core.target import Target

Scalar = bool | int | float | str
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Tier = Literal["cpu", "gpu"]
_ENOUGH_CLEAN = 20  # steps: twice as many as the level of a launch is the fastest of
# What rounding changes at most on another processor, with a margin (benchmarks/losses.py
# measures it). That of TF32 was not measured.
LOSS_TOLERANCES: dict[Precision, float] = {"fp32": 1e-4, "tf32": 1e-3, "fp16": 1e-3, "bf16": 2e-3}
# Of the ranks. They change what is logged while a process group starts, and no step.
# NCCL_DEBUG_SUBSYS can log each call, and TORCH_DISTRIBUTED_DEBUG adds checks: these are work.
LOGGING_VARIABLES = frozenset(
    {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "TORCH_CPP_LOG_LEVEL", "GLOO_LOG_LEVEL"}
)
# Of the timed steps on a GPU. The energy of a shorter time is unknown (core/metric.py).
TIMED_ON_GPU_S = 2.5
_MOST_TIMED = 2000  # steps: more would fill the results file, and steps under 1 ms vary little


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of launches and steps, and deadlines. They are not part of the case's fingerprint."""

    steps: int  # total, with the warm-ups: "55 of 60 measured"
    warmup: int
    launches: int
    start_deadline_s: float
    step_deadline_s: float

    @property
    def measured(self) -> int:
        """The least number of timed steps: a launch on a GPU or a busy CPU has more of them."""
        return self.steps - self.warmup

    def steps_on_gpu(self, step_s: float) -> int:
        """Return the number of steps of the timed loop on a GPU, with its warm-ups.

        They are at least those of the suite, and last long enough for a reading of clocks, power
        and energy. ``step_s`` is what a step takes.
        """
        return max(self.steps, self.warmup + min(_MOST_TIMED, math.ceil(TIMED_ON_GPU_S / step_s)))

    @property
    def enough_clean(self) -> int:
        """The number of undisturbed steps that a launch on CPUs goes on for."""
        return min(_ENOUGH_CLEAN, self.measured)


class StepTolerances(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tolerances of what every training has."""

    step_time: Annotated[
        Fraction, Meta(description="Level of the step: the fastest of ten clean steps.")
    ] = 0.05
    tail: Annotated[
        Fraction | None, Meta(description="Mean step ÷ level of the step: steps that stall.")
    ] = 0.05
    efficiency: Annotated[
        Fraction | None,
        Meta(description="Level of the step of N ranks ÷ the ideal, which follows from one."),
    ] = 0.05
    cpu_time: Annotated[
        Fraction | None, Meta(description="CPU time of a step on its busiest rank; tier cpu only.")
    ] = 0.05
    peak_memory: Annotated[Fraction | None, Meta(description="Largest memory of a rank.")] = 0.05
    energy: Annotated[
        Fraction | None, Meta(description="Joules per sample, of all GPUs; tier gpu only.")
    ] = None


class Tolerances(StepTolerances, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest acceptable worsening of each metric, as a fraction. null: not gated."""

    loss: Annotated[
        Fraction | UnsetType | None,
        Meta(
            description="Change of a loss, as a share of the largest one; by default what rounding"
            " explains in the precision of the case."
        ),
    ] = UNSET

    def of(self, metric: str) -> float | None:
        tolerance: float | None = getattr(self, metric)
        return tolerance


class TrainingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a workload's training. A collective and a script have none of them."""

    model: dict[str, Scalar] = {}
    data: DataOptions = DataOptions()
    ddp: DdpOptions | None = None  # of strategy ddp
    fsdp: FsdpOptions | None = None  # of strategy fsdp
    comm_hook: AnyCommHook | None = None  # None: DDP's own all-reduce
    gradient_accumulation: int = 1  # micro-steps of a step
    activation_checkpointing: bool = False
    compile: bool = False
    cuda_graphs: bool = False
    cudnn_benchmark: bool = False


class CostOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a suite by which costs are computed. They change no step."""

    price_per_gpu_hour: float | None = None  # None: not stated, so no cost is shown
    epoch_samples: int | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A case: workload × strategy × precision × (world size, batch size) × options.

    A case may also be a collective by itself. Then `workload` is the name of the collective,
    `strategy` is "none", and there are no samples. Or it is a script, which has a strategy, a
    precision and data of its own: `workload` is its name, `strategy` is "script".
    """

    id: str
    suite: str
    tier: Tier
    workload: str
    collective: CollectiveStep | None = None  # None: the case trains
    script: ScriptRun | None = None  # None: a workload is trained, or a collective called
    strategy: Strategy
    precision: Precision | None  # None: a script chooses it
    training: TrainingOptions = TrainingOptions()
    world_size: int
    nodes: int = 1  # with as many ranks on each
    # The links that the collectives of an emulated case take their time from, as its suite states
    # them: one of its ranks runs. None: all ranks run.
    network: str | None = None
    modelled_nodes: int = 1  # of that network, with as many of its ranks on each
    launcher: LauncherName = "forkserver"  # it changes no step, and is not in the fingerprint
    batch_size: int | None  # per rank and micro-step; None: a collective
    # Samples of a step over all ranks and micro-steps, which is the same for any number of ranks
    # (strong scaling). None: the batch per rank is the same (weak scaling).
    global_batch: int | None = None
    env: dict[str, str]
    schedule: Schedule
    tolerances: Tolerances
    targets: tuple[Target, ...] = ()  # of each figure the first one on the accelerator applies
    # The patterns of its suite's core that match its id. None: the suite states no core.
    core: tuple[str, ...] | None = None
    single: str | None  # id of the single-rank case that is the denominator of scaling
    base: str | None = None  # id of the case that it is compared with: without its technique
    technique: str | None = None  # name of the technique, the hook, or the swept value
    cost: CostOptions = CostOptions()

    @property
    def key(self) -> tuple[str, str]:
        """The name of the suite and the id: unique in a pytest session, where the id is not."""
        return self.suite, self.id

    @property
    def trains(self) -> bool:
        """True if the case trains a model, so that it has a structure, scaling and samples."""
        return self.collective is None

    @property
    def layout(self) -> tuple[int, int]:
        """Its nodes and the ranks on each, as its training has them: the network's, if emulated."""
        nodes = max(self.nodes, self.modelled_nodes)
        return nodes, self.world_size // nodes

    @property
    def ranks_per_node(self) -> int:
        """The ranks on each node of its layout: 2 × 8 ranks do not cost what 4 × 4 do."""
        return self.layout[1]

    @property
    def run_per_node(self) -> int:
        """The ranks that run on each of its nodes: one of an emulated case."""
        return self.ranks_per_node if self.network is None else 1

    @property
    def run_ranks(self) -> int:
        """The ranks that run, and have results."""
        return self.nodes * self.run_per_node

    @property
    def ranks_text(self) -> str:
        """The ranks and nodes that it needs: ``8 ranks``, ``16 ranks on 2 nodes``."""
        ranks = f"{self.world_size} ranks"
        return ranks if self.nodes == 1 else f"{ranks} on {self.nodes} nodes"

    @property
    def replicates(self) -> bool:
        """True if each of several nodes has a copy of the parameters, sharded over its ranks."""
        fsdp = self.training.fsdp
        return self.layout[0] > 1 and fsdp is not None and fsdp.replicate is not None

    @property
    def _follows_nodes(self) -> bool:
        size = getattr(self.training.comm_hook, "group_size", None)
        return self.replicates or isinstance(size, str)

    @property
    def group_size(self) -> int | None:
        """The ranks of a group of its hook. None: it has no hook, or one without groups."""
        size: int | str | None = getattr(self.training.comm_hook, "group_size", None)
        return self.ranks_per_node if isinstance(size, str) else size

    @property
    def loss_tolerance(self) -> float | None:
        """The largest change of a loss, as a share of the largest one. None: it is not judged.

        That of a script is not: its seeds are its own.
        """
        if self.precision is None:
            return None
        given = self.tolerances.loss
        return LOSS_TOLERANCES[self.precision] if given is UNSET else given

    @property
    def threads_per_rank(self) -> int:
        """Threads of a rank: OMP_NUM_THREADS of the suite, else one.

        Two threads on one core are three times slower than one. A rank on a GPU has one thread
        too, as with torchrun: a single rank must not have more threads than one of eight.
        """
        return int(self.env.get("OMP_NUM_THREADS", "1"))

    @property
    def working_env(self) -> dict[str, str]:
        """The environment of the ranks without the variables that only change what is logged."""
        return {name: text for name, text in self.env.items() if name not in LOGGING_VARIABLES}

    @property
    def samples_per_step(self) -> int:
        """Samples of all ranks in one step. For a collective: its calls in one step."""
        if self.collective is not None:
            return self.collective.calls
        if self.script is not None:
            return self.script.samples
        assert self.batch_size is not None  # it trains
        return self.world_size * self.batch_size * self.training.gradient_accumulation

    def work(self) -> dict[str, Scalar]:
        """Return the fingerprint: everything that changes the work of a step, by dotted name.

        Steps, warm-ups and launches are not in it: they change the precision of a measurement,
        not the work. An option that was added later is in it only if the case uses it, so that
        older fingerprints stay valid.
        """
        work: dict[str, Scalar] = {"tier": self.tier, "world_size": self.world_size}
        if self.collective is not None:
            work |= _flat("collective", self.collective)
        elif self.script is not None:
            work |= self._of_script(self.script)
        else:
            work |= self._training()
        if self.nodes > 1 or (self.modelled_nodes > 1 and self._follows_nodes):
            work["nodes"] = self.layout[0]
        if self.network is not None:
            work["network"] = self.network
        work |= {f"env.{name}": self._of_any_ranks(name) for name in self.working_env}
        return work

    def _of_any_ranks(self, variable: str) -> str:
        """Return the value of a variable, with {world_size} where the suite of a script has it."""
        value = self.env[variable]
        if self.script is None:
            return value
        text = dict(self.script.env_of_any_ranks).get(variable, value)
        is_replaced = text.replace("{world_size}", str(self.world_size)) != value
        return value if is_replaced else text

    def _of_script(self, script: ScriptRun) -> dict[str, Scalar]:
        assert self.batch_size is not None  # it trains
        return {
            "script": script.script,
            "args": shlex.join(script.args_of_any_ranks or script.args),
            "batch_size": self.batch_size,
            "samples": script.samples,
            "steps_by": script.steps_by,
        }

    def _training(self) -> dict[str, Scalar]:
        assert self.batch_size is not None  # it trains
        assert self.precision is not None  # a workload
        options = self.training
        work: dict[str, Scalar] = {
            "workload": self.workload,
            "strategy": self.strategy,
            "precision": self.precision,
            "batch_size": self.batch_size,
        }
        work |= {f"model.{name}": value for name, value in options.model.items()}
        work |= {f"data.{name}": value for name, value in options.data.chosen().items()}
        for name in ("ddp", "fsdp", "comm_hook"):
            if (chosen := getattr(options, name)) is not None:
                work |= _flat(name, chosen)
        if self.global_batch is not None:
            work["global_batch"] = self.global_batch
        for name in _ADDED_OPTIONS:
            if (value := getattr(options, name)) != getattr(_DEFAULTS, name):
                work[name] = value
        return work


_DEFAULTS = TrainingOptions()
_ADDED_OPTIONS = (
    "gradient_accumulation",
    "activation_checkpointing",
    "compile",
    "cuda_graphs",
    "cudnn_benchmark",
)


def _flat(name: str, options: msgspec.Struct) -> dict[str, Scalar]:
    """Return the fields of `options` by dotted name, with the kind of a hook."""
    fields: dict[str, Scalar] = msgspec.to_builtins(options)
    return {f"{name}.{field}": value for field, value in fields.items() if value is not None}


def with_training(case: Case, **options: Any) -> Case:
    """Return the case with these options of its training."""
    training = msgspec.structs.replace(case.training, **options)
    return msgspec.structs.replace(case, training=training)


# The key of a scaling curve: its cases do the same work on each rank, or on all together.


# Fields of the work, or groups of them (the part before the dot), that may differ on a curve.
RANKS = frozenset({"world_size", "nodes"})
# One rank has nobody to exchange with: its run may have no strategy.
RANKS_AND_STRATEGY = RANKS | {"strategy", "ddp", "fsdp", "comm_hook"}


def work_without(work: Mapping[str, Scalar], fields: Collection[str]) -> dict[str, Scalar]:
    """Return the fingerprint without these fields and groups of fields.

    What follows from the number of ranks is left out with it: on a strong curve the batch per rank,
    and of a script the samples of a step.
    """
    if set(fields) >= RANKS:
        fields = {*fields, "samples", *(["batch_size"] if "global_batch" in work else [])}
    return {name: value for name, value in work.items() if name.partition(".")[0] not in fields}


def samples_of(work: Mapping[str, Scalar]) -> int:
    """Return the samples of a training step over all ranks and micro-steps."""
    if "samples" in work:
        return int(work["samples"])
    each = int(work["batch_size"]) * int(work.get("gradient_accumulation", 1))
    return each * int(work["world_size"])


def scaling_key(work: Mapping[str, Scalar]) -> str:
    """Return a key that all cases of one scaling curve share, whatever their number of ranks."""
    return repr(sorted(work_without(work, RANKS).items()))


def layout_curves(works: Sequence[Mapping[str, Scalar]]) -> dict[int | None, list[int]]:
    """Return the curves of cases with one scaling key: the places of the cases, by layout.

    A curve has one number of ranks on each node. It consists of the cases of several nodes with as
    many on each, and of those of one node with no more. So 2 × 8 and 4 × 4 ranks are on two curves,
    and 4 ranks of one node are on both. None: one node, if some of its cases are on no other curve.
    """
    ranks = [int(work["world_size"]) for work in works]
    nodes = [int(work.get("nodes", 1)) for work in works]
    on_one = [place for place, count in enumerate(nodes) if count == 1]
    sizes = sorted({n // count for n, count in zip(ranks, nodes, strict=True) if count > 1})
    curves: dict[int | None, list[int]] = {}
    if not sizes or any(ranks[place] > max(sizes) for place in on_one):
        curves[None] = on_one
    for size in sizes:
        across = [p for p, count in enumerate(nodes) if count > 1 and ranks[p] // count == size]
        curves[size] = [*(place for place in on_one if ranks[place] <= size), *across]
    return curves


def curve_label(case_id: str, ranks: int) -> str:
    """Return a case's id without its ranks and nodes: ``mlp-b64`` of ``mlp-ws16-2x8-b64``.

    An emulated one keeps that it is.
    """
    return re.sub(rf"(^|-)ws{ranks}(-\d+x\d+)?(?=-|$)", "", case_id)


EMULATED = "emulated"


def emulated(case: Case, network: str) -> Case:
    """Return the case with one of its ranks running, over this network: ``mlp-ws64-emulated-b8``.

    Its nodes are those of the network. It keeps the id of the one-rank case, whose rank does run.
    """
    found = re.compile(rf"(^|-)ws{case.world_size}(-\d+x\d+)?(?=-|$)")

    def named(case_id: str) -> str:
        return found.sub(rf"\1ws{case.world_size}-{EMULATED}", case_id, count=1)

    base = None if case.base is None else named(case.base)
    return msgspec.structs.replace(
        case,
        id=named(case.id),
        base=base,
        network=network,
        nodes=1,
        modelled_nodes=case.nodes,
    )


def emulated_ranks(case_id: str) -> int | None:
    """Return the ranks that an id of an emulated case states, or None."""
    found = re.search(rf"(?:^|-)ws(\d+)-{EMULATED}(?=-|$)", case_id)
    return int(found[1]) if found else None
