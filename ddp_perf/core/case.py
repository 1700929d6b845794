"""What is run: one case, everything about its work resolved."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.data import DataOptions

Scalar = bool | int | float | str
Fraction = Annotated[float, Meta(gt=0, lt=1)]
Tier = Literal["cpu", "gpu"]


class DdpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of ``DistributedDataParallel``; the defaults are PyTorch's own."""

    bucket_cap_mb: Annotated[
        float, Meta(gt=0, le=1e6, description="Size of a gradient bucket, MiB (PyTorch: 25).")
    ] = 25
    broadcast_buffers: Annotated[
        bool, Meta(description="Broadcast rank 0's buffers (BatchNorm statistics) every forward.")
    ] = True
    gradient_as_bucket_view: Annotated[
        bool, Meta(description="Let gradients be views into the buckets: saves one copy.")
    ] = False
    static_graph: Annotated[
        bool, Meta(description="Promise that the graph is the same in every step.")
    ] = False
    find_unused_parameters: Annotated[
        bool, Meta(description="Search the graph for parameters without gradient.")
    ] = False


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently a case is measured; never part of what it is."""

    steps: int  # in all, warm-ups included, as in "55 of 60 measured"
    warmup: int
    launches: int
    start_deadline_s: float
    step_deadline_s: float

    @property
    def measured(self) -> int:
        return self.steps - self.warmup


class Tolerances(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much worse a metric may get before it matters, as fractions; null: not gated."""

    step_time: Annotated[Fraction, Meta(description="Typical step time: median of a launch.")] = (
        0.05
    )
    tail: Annotated[
        Fraction | None, Meta(description="Mean ÷ median step time: steps that stall.")
    ] = 0.05
    efficiency: Annotated[
        Fraction | None, Meta(description="Step time of N ranks ÷ that of one.")
    ] = 0.05
    peak_memory: Annotated[Fraction | None, Meta(description="Largest memory of a rank.")] = 0.05

    def of(self, metric: str) -> float | None:
        tolerance: float | None = getattr(self, metric)
        return tolerance


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Workload × strategy × precision × (world size, batch size per rank) × options."""

    id: str
    suite: str
    tier: Tier
    workload: str
    model: dict[str, Scalar]
    data: DataOptions = DataOptions()
    strategy: Literal["none", "ddp"]
    ddp: DdpOptions | None
    precision: Literal["fp32"]
    world_size: int
    batch_size: int  # per rank
    env: dict[str, str]
    schedule: Schedule
    tolerances: Tolerances
    single: str | None  # id of the one-rank case that scaling is measured against

    @property
    def threads_per_rank(self) -> int:
        """One, unless OMP_NUM_THREADS says: two threads on one core are three times slower."""
        return int(self.env.get("OMP_NUM_THREADS", "1"))

    @property
    def samples_per_step(self) -> int:
        """Over all ranks."""
        return self.world_size * self.batch_size

    def work(self) -> dict[str, Scalar]:
        """Everything that changes the work of a step, flat, by dotted name: the fingerprint.

        Steps, warm-ups and launches are left out: they change how well a case is
        measured, not what it is.
        """
        work: dict[str, Scalar] = {
            "tier": self.tier,
            "workload": self.workload,
            "strategy": self.strategy,
            "precision": self.precision,
            "world_size": self.world_size,
            "batch_size": self.batch_size,
        }
        work |= {f"model.{name}": value for name, value in self.model.items()}
        work |= {f"data.{name}": value for name, value in self.data.chosen().items()}
        if self.ddp is not None:
            options = msgspec.structs.asdict(self.ddp)
            work |= {f"ddp.{name}": value for name, value in options.items() if value is not None}
        work |= {f"env.{name}": value for name, value in self.env.items()}
        return work
