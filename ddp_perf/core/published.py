"""Figures that somebody published: not measured here, without a spread, some of them wrong.

They stand beside what is measured. They never set its level: a published figure yields MEETS
or BELOW PUBLISHED at a stated tolerance, and only where its own arithmetic holds (`audit`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Fraction, Scalar

Figure = Annotated[float, Meta(gt=0)]


class PublishedRow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One row of a published table, figure by figure as it is printed there."""

    case: str | None = None  # id of the case that does this work; None: none of ours does
    strategy: str | None = None
    world_size: Annotated[int, Meta(ge=1)]
    batch_size: Annotated[int, Meta(ge=1)] | None = None  # per rank
    step_ms: Figure | None = None
    throughput: Figure | None = None  # of the unit of the table, over all ranks
    bus_gb_per_s: Figure | None = None  # of a collective, as nccl-tests defines it; 10⁹ bytes
    speedup: Figure | None = None
    efficiency: Figure | None = None  # a fraction
    epochs: Annotated[int, Meta(ge=1)] | None = None
    epoch_s: Figure | None = None
    total_s: Figure | None = None
    epoch_samples: Annotated[int, Meta(ge=1)] | None = None
    measured_steps: Annotated[int, Meta(ge=1)] | None = None
    measured_samples: Annotated[int, Meta(ge=1)] | None = None
    hours: Figure | None = None
    cost: Figure | None = None  # at the table's price
    cost_efficiency: Figure | None = None  # cost on 1 GPU ÷ this one

    @property
    def label(self) -> str:
        gpus = f"{self.world_size} GPU{'s' if self.world_size > 1 else ''}"
        return gpus + (f", batch {self.batch_size}" if self.batch_size else "")


class PublishedTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A table of a document, with what it says of how it was measured."""

    name: str
    document: str
    where: str  # the section, and what else tells the table apart
    hardware: str
    modelled: bool = False  # expected or extrapolated by its authors, not measured by them
    scaling: Literal["weak", "strong"] = "weak"  # as the document calls it
    unit: str = "samples"
    price_per_gpu_hour: Figure | None = None
    work: dict[str, Scalar] = {}  # what a case's work must say to be comparable
    steps: int | None = None  # of a comparable measurement, warm-ups included
    warmup: int | None = None
    tolerance: Fraction = 0.05  # a figure without a spread: what still counts as met
    remark: str = ""
    rows: Annotated[tuple[PublishedRow, ...], Meta(min_length=1)]
