"""A launch: its request, its outcome, and what each rank used and was disturbed by."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.gpu import CLOCKS, ClockName, GpuLoad, NodeHardware
from ddp_perf.core.injection import Injection
from ddp_perf.core.strategy import Strategy

# Disturbances of a launch while it was measured: CPU contention, steal time, heat and others.
#
# Most figures are shares of the time. None means unknown: a kernel or a virtual machine that does
# not report a figure is no proof that nothing happened.


Share = Annotated[float, Meta(ge=0, le=1)]


class RankConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of one rank: its cores, its GPU and its control group.

    They are read just before and just after the timed loop. The start of a rank is not in them: a
    quota that throttles the start lengthens no step.
    """

    stolen: Share | None = None  # steal time, of its cores' time in use
    foreign: Share | None = None  # CPU contention: waits for a core that others used, of the time
    slow_clock: Share | None = None  # 1 − clock ÷ base frequency of its cores
    overheated: bool | None = None  # heat throttled one of its cores
    # Denied share of the CPU time that the control group wanted: by others' use of its quota, or
    # by whose use nobody knows.
    quota: Share | None = None
    own_quota: Share | None = None  # the same, because the ranks themselves used the quota up
    memory: Share | None = None  # share of the time in which some process waited for memory
    own_memory: Share | None = None  # the same, but the ranks themselves filled the memory
    gpu_heat: Share | None = None  # share of the time in which heat reduced its GPU's clocks
    gpu_slowed: bool | None = None  # hardware reduced its clocks, after the last step
    gpu_shared: bool | None = None  # others computed on its GPU
    gpu_errors: bool | None = None  # memory errors that ECC could not correct


def share(part: float, whole: float) -> float:
    """Return part ÷ whole within 0 and 1, and 0 if `whole` is not positive.

    The kernel counts in ticks, so a quotient may lie a little outside.
    """
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


# The utilisation of a rank: what it used of its cores, its GPU and its network while measured.
#
# Each figure is a difference of two counters, or a mean of samples that the driver keeps anyway,
# over one period: from just before the last warm-ups until just after the last timed step. Nothing
# is read within it. None means unknown. docs/measuring.md has the source and the limits of each.


class GpuTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one GPU: counters since the driver was loaded, or those of a period."""

    pcie_sent: int | None = None
    pcie_received: int | None = None
    nvlink_sent: int | None = None  # over all its links, without protocol overhead
    nvlink_received: int | None = None


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a rank's GPU by all its processes."""

    busy: Share | None = None  # of the time: some kernel ran, however few of the SMs it used
    memory_busy: Share | None = None  # of the time: its memory was read or written
    sm_clock_mhz: float | None = None  # mean
    memory_used: int | None = None  # bytes after the last step, as nvidia-smi counts them
    traffic: GpuTraffic = GpuTraffic()


class NetworkUse(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of the interface of the process group, by all processes of the host."""

    interface: str
    sent: int
    received: int
    speed: float | None = None  # of the link, in bytes/s and direction; None: it has none, as lo


class RdmaUse(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of all active ports for RDMA (InfiniBand, RoCE), by all processes of the host."""

    ports: str  # "8 x InfiniBand 400 Gb/sec (4X NDR)"
    sent: int
    received: int
    waited: int | None = None  # ticks in which a port had data and sent none; adapters differ
    speed: float | None = None  # of all ports together, in bytes/s and direction


class RankUtilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The cores, the network and the GPU that one rank used in the period."""

    period_s: Annotated[float, Meta(gt=0)]
    cpu_s: float  # CPU time of the rank's process, all threads
    system_s: float  # the part of it in the kernel
    loaders_cpu_s: float | None = None  # of its child processes: the workers of its data loader
    network: NetworkUse | None = None  # only of rank 0, for all ranks: it counts the whole host
    rdma: RdmaUse | None = None  # as network; only of cases over several nodes
    gpu: GpuUse | None = None  # None: on the CPU tier


# A launch: its request, and its outcome – a result of every rank, or a failure with its rank.


_LONG = 0.02  # of a step: a longer wait for a core disturbs it (chosen by benchmarks/levels.py)


class Collective(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One call of a collective in a step, as rank 0 issued it."""

    kind: str  # "all_reduce", "broadcast", …
    dtype: str
    bytes: int


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """The exact structure of a step. It is the same on every machine unless the work changed."""

    parameters: int
    gradient_bytes: int
    buckets: tuple[int, ...]  # bytes of each gradient bucket after the rebuild
    collectives: tuple[Collective, ...]  # of one step, in order

    @property
    def strategy(self) -> Strategy:
        """The strategy that it shows: only DDP has buckets, only FSDP scatters what it reduces."""
        if not self.collectives:
            return "none"
        if self.buckets:
            return "ddp"
        scatters = any(one.kind == "reduce_scatter" for one in self.collectives)
        return "fsdp" if scatters else "script"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The device and the cores of a rank.

    ``device_id`` is unique on the machine: the UUID of a GPU, or the cores.
    """

    rank: int
    device: str  # "cuda:0" or "cpu"
    device_id: str
    device_name: str
    cores: tuple[int, ...]
    cuda_visible_devices: str | None
    node: int = 0  # number of its node in the launch
    host: str  # of that node

    @property
    def node_name(self) -> str:
        """The node in words: ``node 1 (b)``. Two nodes may be on one host."""
        return f"node {self.node} ({self.host})"


class Unit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The unit of throughput, and the number of units in a sample."""

    name: str = "samples"  # "images", "tokens", …
    per_sample: int = 1


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """The warm-up of a GPU until it is steady, before the suite's own warm-ups."""

    steps: int
    # False: step time, clock, power or temperature of a GPU still changed at the limit of time.
    steady: bool
    again: int = 0  # further steps after the last reading, just before the timed loop
    step_s: float  # of the slowest rank at its end
    load: GpuLoad | None = None  # of the rank's GPU at its end; None: unknown


class Numerics(msgspec.Struct, frozen=True, kw_only=True):
    """Numeric settings of torch on a GPU, read after the steps: a workload may change them."""

    matmul_precision: str  # of fp32: "highest" is IEEE 754; "high" and "medium" allow TF32
    convolution_tf32: bool
    cudnn_benchmark: bool
    allocator: str  # "native" or "cudaMallocAsync"


class ScriptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the timed steps of a script that its times do not show."""

    steps_at: str  # the line of the script that its optimizer steps at: "train.py:57"
    micro_steps: tuple[int, int]  # backward passes of a step: the least and the most
    optimizers: int  # that step in a step
    skipped: int  # steps that a GradScaler skipped
    own_files: tuple[str, ...] = ()  # that it wrote in its private tree, which is removed
    changed_files: tuple[str, ...] = ()  # of the user, that it opened to write: they stay


Fact = Literal["control", "profile", "digest", "losses", "ddp_logging", "structure", "probe"]
FACTS: tuple[Fact, ...] = get_args(Fact)
PEER_LEFT = "another rank left the examination"
PEER_HUNG = "another rank hung in the examination"
_SYMPTOMS = PEER_LEFT, PEER_HUNG


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one rank measured. Times are in seconds."""

    placement: Placement
    warmup_s: tuple[float, ...]
    step_s: tuple[float, ...]
    cpu_s: tuple[float, ...]  # CPU time of all threads, per measured step
    # Number of measured steps of each loop that a barrier began, on a busy CPU. Empty: one loop.
    loops: tuple[int, ...] = ()
    # Time in which the main thread was ready, but had no core, per measured step. Empty: a GPU, or
    # a kernel that does not count it.
    waited_s: tuple[float, ...] = ()
    control_s: tuple[float, ...]  # times of the control, before and after the steps
    peak_memory: int  # bytes: allocator's peak on a GPU, peak resident set on a CPU
    digest: int | None  # of the parameters after the last step: equal on all ranks
    structure: Structure | None  # None: a collective, which has no digest either
    ddp_logging: dict[str, int | float | str]  # DDP's own logging data; empty for a plain module
    flops: int | None = None  # of one step: matrix products, convolutions, attention
    # The same, by the format that they are computed in: "fp32", "tf32", "bf16", "fp16", "fp8" or
    # torch's name of another. Empty: not counted.
    flops_by_format: dict[str, int] = {}
    # By the number of the step from the initial parameters on: 1, 2, 4 … 32. None: NaN or infinite.
    losses: dict[str, float | None] = {}
    # Relative unit of the coarsest type of its trained parameters and its loss. None: no losses.
    loss_unit: float | None = None
    # False: an iterator gives the batches, maybe of several sizes; of a script: two steps have
    # computed different amounts.
    one_batch: bool = True
    unit: Unit = Unit()
    conditions: RankConditions = RankConditions()
    extra_warmup: WarmUp | None = None  # None: on the CPU tier
    numerics: Numerics | None = None  # None: on the CPU tier
    host_bound: bool | None = None  # its GPU waited for the host; None: unknown, or no GPU
    slowdown: float | None = None  # share that compute:N% added to its step, as measured
    energy_j: float | None = None  # of its GPU, in warm-ups and measured steps; None: unknown
    load: GpuLoad | None = None  # of its GPU while it ran the last timed steps; None: unknown
    utilisation: RankUtilisation | None = None  # None: unknown
    # None: a step that a CUDA graph replays, or a script that was over before.
    probe: RankProbe | None = None
    script: ScriptFacts | None = None  # None: a workload, or a collective
    # Why it lacks facts that it should have: what fails after the timed steps costs no times.
    missing: dict[Fact, str] = {}

    def clock_mhz(self, name: ClockName) -> float | None:
        """Return the mean clock of its GPU under load, or None if it is unknown.

        The driver samples the SM clock while the steps run. Otherwise it is the mean of the
        readings before and after them.
        """
        used = self.utilisation.gpu if self.utilisation is not None else None
        if name == "sm_clock_mhz" and used is not None and used.sm_clock_mhz is not None:
            return used.sm_clock_mhz
        before = self.extra_warmup.load if self.extra_warmup is not None else None
        known = [
            value
            for load in (before, self.load)
            if load is not None and (value := getattr(load, name)) is not None
        ]
        return statistics.fmean(known) if known else None


def waited_long(step_s: Sequence[float], waited_s: Sequence[float]) -> list[bool]:
    """Return for each step of a rank whether it waited long for a core; nothing if unknown."""
    if not waited_s:
        return []
    return [wait > _LONG * step for step, wait in zip(step_s, waited_s, strict=True)]


class NcclChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The choice of NCCL for the ranks of a launch, from the lines of NCCL_DEBUG=INFO."""

    version: str | None = None
    channels: int | None = None  # of collectives
    nvls_channels: int | None = None  # of them through NVLink SHARP; None: an older NCCL
    transports: tuple[str, ...] = ()  # "P2P/CUMEM", "SHM/direct/direct", "NET/IB/GDRDMA"
    # "AllReduce RING/SIMPLE", if NCCL_DEBUG_SUBSYS has TUNING.
    algorithms: tuple[str, ...] = ()


class KeptOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a launch, kept as a file of each rank that printed anything."""

    directory: str
    problem: str | None = None  # why it is not there
    nccl: NcclChoice | None = None  # None: no rank printed a line of NCCL


class LaunchResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """A launch in which every rank delivered its times, and no rank reported an error."""

    case_id: str
    round: int
    ranks: tuple[RankResult, ...]  # by rank
    started: str  # ISO 8601, UTC
    wall_s: float  # from the request to the outcome
    output: KeptOutput | None = None  # None: nothing was printed, or it was not asked for
    node_hardware: tuple[
        NodeHardware, ...
    ] = ()  # of its nodes on the gpu tier, if there are several
    node: str | None = None  # that was asked for, by name; None: any node

    @property
    def turn(self) -> tuple[int, str | None]:
        """Its round and node: launches of other cases with the same ones ran just beside it."""
        return self.round, self.node

    @property
    def step_s(self) -> list[float]:
        """Seconds of each measured step of the group, which add up to the time of its last rank.

        The group is through with a step when the last rank is. So a step lasts from one such moment
        to the next, by the times of each rank since the barrier that began the loop. The longest
        step of any rank would be longer: a rank that is a little late at one boundary has a longer
        step, and then a shorter one.
        """
        if len(self.ranks) == 1:
            return list(self.ranks[0].step_s)
        steps: list[float] = []
        for count in self.ranks[0].loops or (len(self.ranks[0].step_s),):
            ends = [
                itertools.accumulate(
                    rank.step_s[len(steps) : len(steps) + count],
                    initial=0.0 if steps else sum(rank.warmup_s),
                )
                for rank in self.ranks
            ]
            through = [max(each) for each in zip(*ends, strict=True)]
            steps += [round(end - start, 9) for start, end in itertools.pairwise(through)]
        return steps

    @property
    def has_several_nodes(self) -> bool:
        return any(rank.placement.node for rank in self.ranks)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its nodes, by node; one may have several nodes."""
        names = {rank.placement.node: rank.placement.host for rank in self.ranks}
        return tuple(names[node] for node in sorted(names))

    @property
    def transports(self) -> tuple[str, ...]:
        """The transports that NCCL printed. It is empty if they are unknown."""
        nccl = None if self.output is None else self.output.nccl
        return () if nccl is None else nccl.transports

    @property
    def disturbed(self) -> list[bool]:
        """True for each measured step in which a rank waited long for a core. Empty: no witness.

        A CPU quota that the ranks use up themselves is a part of the step's cost, and makes them
        wait: then the waits are no witness.
        """
        if any((rank.conditions.own_quota or 0.0) > _LONG for rank in self.ranks):
            return []
        each = [waited_long(rank.step_s, rank.waited_s) for rank in self.ranks]
        return [any(step) for step in zip(*each, strict=True)] if all(each) else []

    @property
    def host_bound(self) -> bool | None:
        """True if a GPU waited for its host, so that the other GPUs waited for that GPU.

        None: unknown, or the CPU tier.
        """
        each = [rank.host_bound for rank in self.ranks]
        return True if True in each else None if None in each else False

    @property
    def clocks_mhz(self) -> dict[ClockName, float]:
        """The clocks under load of the GPU that has the lowest, as far as they are known."""
        return {
            name: min(known)
            for name in CLOCKS
            if (known := [c for rank in self.ranks if (c := rank.clock_mhz(name)) is not None])
        }

    @property
    def typical_step_s(self) -> float:
        """The median step of the group, in seconds."""
        return statistics.median(self.step_s)

    @property
    def losses(self) -> dict[str, float | None]:
        """The mean loss of the ranks by step; None if that of a rank is not finite.

        There is none if a rank has none.
        """
        if not all(rank.losses for rank in self.ranks):
            return {}
        return {step: self._loss(step) for step in self.ranks[0].losses}

    def why_missing(self, fact: Fact) -> str | None:
        """Return why a rank lacks the fact, with its number, or None if none should have it.

        A rank that lost another, or waited for it, comes after that one.
        """
        reasons = [
            (why in _SYMPTOMS, rank.placement.rank, why)
            for rank in self.ranks
            if (why := rank.missing.get(fact)) is not None
        ]
        if not reasons:
            return None
        _, number, why = min(reasons)
        return f"rank {number}: {why}"

    def _loss(self, step: str) -> float | None:
        each = [rank.losses[step] for rank in self.ranks]
        finite = [loss for loss in each if loss is not None]
        return statistics.fmean(finite) if len(finite) == len(each) else None

    @property
    def unit(self) -> Unit:
        """The unit of the workload, which is the same on all ranks."""
        return self.ranks[0].unit


def first_structure(launches: Iterable[LaunchResult]) -> Structure | None:
    """Return the structure of a step as rank 0 of the first launch that counted one has it."""
    structures = (launch.ranks[0].structure for launch in launches)
    return next((structure for structure in structures if structure is not None), None)


def why_missing(launches: Sequence[LaunchResult], fact: Fact) -> str | None:
    """Return why launches lack a fact, and how many do, or None if none should have it."""
    reasons = [why for launch in launches if (why := launch.why_missing(fact)) is not None]
    return f"in {len(reasons)} of {len(launches)} launches: {reasons[0]}" if reasons else None


# "needs_gpu": a script, whose step was to be counted on a CPU.
FailureKind = Literal["exception", "needs_gpu", "exit", "signal", "hang", "disagreement", "server"]


class LaunchFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A launch that failed: the rank, the cause, and the last output of the rank."""

    case_id: str
    round: int
    kind: FailureKind
    rank: int | None  # None: no single rank is the cause
    node: str | None = None  # of the cause, by name; None: the only node, or no single one
    detail: str
    traceback: str = ""
    user_frames: str = ""  # the traceback without the frames of this package and of torch
    output: str = ""  # the last lines of the rank on stdout and stderr
    stacks: dict[str, str] = {}  # "rank 0": faulthandler's dump, or the state of the process
    collectives: dict[str, str] = {}  # "rank 0": the last ones that it began, if the launch hung

    def __str__(self) -> str:
        who = "launch" if self.rank is None else f"rank {self.rank}"
        if self.node is not None:
            who = f"node {self.node}" if self.rank is None else f"{who} on node {self.node}"
        return f"{self.case_id}: launch {self.round + 1}: {who}: {self.detail}"


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True, tag="launch"):
    """A request for one launch: a case, and the round of the session."""

    case: Case
    round: int
    paired: bool = False  # other launches of its round are compared with it
    node: str | None = None  # the one node that runs it, by name; None: any
    import_paths: tuple[str, ...] = ()  # directories from which a user's workload is imported
    injections: tuple[Injection, ...] = ()  # only those that apply to the case
    probe_steps: int = 8  # steps of each run of the probe, after the timed steps
    profiling: Profiling | None = None
    records: str | None = None  # directory for the flight records of ranks that hang
    output: str | None = None  # directory for what the ranks print, if the launch succeeds
    # All ranks run on cuda:0, over gloo, to test DDP's CUDA path on a machine with one GPU. Their
    # times mean nothing, so such a launch is never judged or stored.
    shared_gpu: bool = False

    def not_run(self, why: str, output: str = "") -> LaunchFailure:
        """Return the failure of a launch whose ranks could not run, or were lost with their server.

        ``output``: the last lines of the server.
        """
        return LaunchFailure(
            case_id=self.case.id,
            round=self.round,
            kind="server",
            rank=None,
            detail=why,
            output=output,
        )


class Profiling(msgspec.Struct, frozen=True, kw_only=True):
    """A request to trace some steps of every rank, after the timed steps."""

    steps: int
    directory: str  # receives one file of each rank

    def file(self, rank: int) -> str:
        return f"{self.directory}/rank{rank}.json.gz"
