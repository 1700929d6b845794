"""Figures that somebody published: not measured here, without a spread, some of them wrong.

They are shown beside what is measured and never set its level. A published figure yields MEETS
or BELOW PUBLISHED at a stated tolerance, and only where the document states all of the work and
the row's own arithmetic holds (`audit`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Fraction, Scalar

Figure = Annotated[float, Meta(gt=0)]
Date = Annotated[str, Meta(pattern=r"^(\d{4}(-\d\d(-\d\d)?)?|undated)$")]  # ISO 8601


class PublishedRow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One row of a published table, figure by figure as it is printed there."""

    name: str | None = None  # as the document calls the row, where its GPUs and batch do not tell
    case: str | None = None  # id of the case that does this work; None: none of ours does
    strategy: str | None = None
    world_size: Annotated[int, Meta(ge=1)]
    batch_size: Annotated[int, Meta(ge=1)] | None = None  # per rank
    step_ms: Figure | None = None
    throughput: Figure | None = None  # of the unit of the table, over all ranks
    bus_gb_per_s: Figure | None = None  # of a collective, as nccl-tests defines it; 10⁹ bytes
    speedup: Figure | None = None
    efficiency: Figure | None = None  # a fraction
    communication: Annotated[float, Meta(ge=0, lt=1)] | None = None  # its share of a step
    epochs: Annotated[int, Meta(ge=1)] | None = None
    epoch_s: Figure | None = None
    epochs_s: tuple[Figure, ...] = ()  # of each epoch in turn
    total_s: Figure | None = None
    total_speedup: Figure | None = None  # of the total time, where it differs from ``speedup``
    epoch_samples: Annotated[int, Meta(ge=1)] | None = None
    measured_steps: Annotated[int, Meta(ge=1)] | None = None
    measured_samples: Annotated[int, Meta(ge=1)] | None = None
    hours: Figure | None = None
    cost: Figure | None = None  # at the table's price
    cost_efficiency: Figure | None = None  # cost on 1 GPU ÷ this one

    @property
    def label(self) -> str:
        """Return what tells the row apart: "4 GPUs, batch 8 (AG News)"."""
        gpus = f"{self.world_size} GPU{'s' if self.world_size > 1 else ''}"
        batch = f", batch {self.batch_size}" if self.batch_size else ""
        return gpus + batch + (f" ({self.name})" if self.name else "")


class PublishedTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A table of a document, with what the document states about how it was measured.

    ``work`` holds what the document states about the work, by the dotted names of a case's
    fingerprint. ``inferred`` names what it does not state, so that the case's own is an inference
    or this suite's choice: a table with anything inferred never gates.
    """

    name: str
    document: str
    url: str | None = None  # of the document at that revision; None: not known
    revision: str | None = None  # commit or version of the document; None: it has none
    date: Date | None = None  # of that revision; None: of a file older than this field
    where: str  # the place in it: the section, and what else tells the table apart
    hardware: str
    modelled: bool = False  # expected or extrapolated by its authors, not measured by them
    scaling: Literal["weak", "strong"] = "weak"  # as the document calls it
    unit: str = "samples"
    price_per_gpu_hour: Figure | None = None
    work: dict[str, Scalar] = {}
    inferred: tuple[str, ...] = ()
    steps: int | None = None  # of a comparable measurement, warm-ups included
    warmup: int | None = None
    tolerance: Fraction = 0.05  # a figure without a spread: what still counts as met
    remark: str = ""
    rows: Annotated[tuple[PublishedRow, ...], Meta(min_length=1)]
