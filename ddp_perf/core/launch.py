"""What one launch gave: a result of every rank, or a failure that names the rank."""

from __future__ import annotations

import statistics
from typing import Literal

import msgspec

from ddp_perf.core.case import Case
from ddp_perf.core.decomposition import RankProbe
from ddp_perf.core.disturbance import RankConditions
from ddp_perf.core.injection import Injection


class Collective(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One collective call of a step, as rank 0 issued it."""

    kind: str  # "all_reduce", "broadcast", …
    dtype: str
    bytes: int


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """What a step does, exactly: the same on every machine, or something was changed."""

    parameters: int
    gradient_bytes: int
    buckets: tuple[int, ...]  # bytes of each gradient bucket after the rebuild
    collectives: tuple[Collective, ...]  # of one step, in order


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank runs. ``device_id`` is unique on the machine: a GPU's UUID, or the cores."""

    rank: int
    device: str  # "cuda:0" or "cpu"
    device_id: str
    device_name: str
    cores: tuple[int, ...]
    cuda_visible_devices: str | None


class Unit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What throughput counts, and how many of them are in a sample."""

    name: str = "samples"  # "images", "tokens", …
    per_sample: int = 1


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU's step time took to stand still, before the suite's own warm-ups."""

    steps: int
    steady: bool  # False: it still moved when so many steps, or their seconds, were spent
    again: int = 0  # steps once more, after the last reading, straight before the timed loop


class Numerics(msgspec.Struct, frozen=True, kw_only=True):
    """What torch computed by on a GPU, read back from it: a workload may have changed it."""

    matmul_precision: str  # of fp32: "highest" is IEEE's, "high" and "medium" may be TF32
    convolution_tf32: bool
    cudnn_benchmark: bool
    allocator: str  # "native" or "cudaMallocAsync"


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """All that one rank measured. Times in seconds."""

    placement: Placement
    warmup_s: tuple[float, ...]
    step_s: tuple[float, ...]
    cpu_s: tuple[float, ...]  # CPU time of the main thread, per measured step
    control_s: tuple[float, ...]  # the frozen reference operation, before and after the steps
    peak_memory: int  # bytes: allocator's peak on a GPU, peak resident set on a CPU
    digest: int | None  # of the parameters after the last step: equal on all ranks
    structure: Structure | None  # as the digest, of training alone
    ddp_logging: dict[str, int | float | str]  # DDP's own, empty for a plain module
    flops: int | None = None  # of one step: matrix products, convolutions, attention
    unit: Unit = Unit()
    conditions: RankConditions = RankConditions()
    extra_warmup: WarmUp | None = None  # None: on the CPU tier
    numerics: Numerics | None = None  # None: on the CPU tier
    host_bound: bool | None = None  # whether its GPU waited for the host; None: not known, or none
    slowdown: float | None = None  # of its step by compute:N%, measured as it was put in
    energy_j: float | None = None  # of its GPU, over warm-ups and measured steps; None: not known
    sm_clock_mhz: int | None = None  # of its GPU after the last step; None: not known, or no GPU
    probe: RankProbe | None = None  # None: an older file, or a step replayed by a CUDA graph


class LaunchResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    """A launch in which every rank delivered and exited with 0."""

    case_id: str
    round: int
    ranks: tuple[RankResult, ...]  # by rank
    started: str  # ISO 8601, UTC
    wall_s: float  # from request to answer

    @property
    def host_bound(self) -> bool | None:
        """Whether a GPU waited for its host: the others' then wait for that GPU. None: not known,
        and on the CPU tier.
        """
        each = [rank.host_bound for rank in self.ranks]
        return True if True in each else None if None in each else False

    @property
    def typical_step_s(self) -> float:
        """The median step, in seconds: the slowest rank decides, step by step."""
        return statistics.median(group_steps(self))

    @property
    def unit(self) -> Unit:
        """What the workload counts, alike on all ranks."""
        return self.ranks[0].unit


FailureKind = Literal["exception", "exit", "signal", "hang", "disagreement", "server"]


class LaunchFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A launch that ended early: which rank, why, and what it said last."""

    case_id: str
    round: int
    kind: FailureKind
    rank: int | None  # None: not one rank's doing
    detail: str
    traceback: str = ""
    output: str = ""  # the rank's last lines on stdout and stderr
    stacks: dict[str, str] = {}  # "rank 0": faulthandler's dump, or the state of the process
    collectives: dict[str, str] = {}  # "rank 0": the last ones it began, of a launch that hung

    def __str__(self) -> str:
        who = "launch" if self.rank is None else f"rank {self.rank}"
        return f"{self.case_id}: launch {self.round + 1}: {who}: {self.detail}"


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: a case, and the session's round that it belongs to."""

    case: Case
    round: int
    import_paths: tuple[str, ...] = ()  # where a user's workload is imported from
    injections: tuple[Injection, ...] = ()  # those that apply to the case
    probe_steps: int = 8  # looked at in each run of the probe, after the timed ones
    profiling: Profiling | None = None
    records: str | None = None  # directory for the ranks' flight records, should they hang
    # All ranks run on cuda:0, over gloo: that proves DDP's CUDA path where there is one GPU. Their
    # times are those of a crowd, so no such launch is ever judged or stored.
    shared_gpu: bool = False


class Profiling(msgspec.Struct, frozen=True, kw_only=True):
    """Trace some steps of every rank, after those that are timed."""

    steps: int
    directory: str  # gets a file of each rank

    def file(self, rank: int) -> str:
        return f"{self.directory}/rank{rank}.json.gz"


def group_steps(launch: LaunchResult) -> list[float]:
    """Seconds of each measured step: the slowest rank decides, step by step."""
    return [max(steps) for steps in zip(*(rank.step_s for rank in launch.ranks), strict=True)]
