"""The fields of every suite file, whether it trains or measures collectives."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from ddp_perf.config.targets import TargetEntries
from ddp_perf.core.case import Schedule, Tier
from ddp_perf.core.cluster import LauncherName

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
            description="What starts the ranks: forkserver on this machine, torchrun on it or on"
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
