"""What every suite file says, whatever it measures."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Schedule, Tier

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.\-]+$")]


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the cases of a suite run, how often and how patiently."""

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
    world_sizes: Annotated[
        list[Count], Meta(min_length=1, description="Numbers of ranks to run with.")
    ]
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
    env: Annotated[
        dict[str, str], Meta(description="Environment of the ranks, read before torch is imported.")
    ] = {}

    def schedule(self) -> Schedule:
        return Schedule(
            steps=self.steps,
            warmup=self.warmup,
            launches=self.launches,
            start_deadline_s=self.start_deadline_s,
            step_deadline_s=self.step_deadline_s,
        )
