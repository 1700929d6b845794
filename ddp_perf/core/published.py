"""Published figures: not measured here, without a spread, and some of them are wrong.

On the GPU that it was published for, a figure is a target of the case that does its work, less a
tolerance. It never sets a reference level.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.case import Fraction, Scalar

STATED, INFERRED = 0.05, 0.15  # the tolerance: all of the work is stated, a part of it is inferred

Figure = Annotated[float, Meta(gt=0)]
Date = Annotated[str, Meta(pattern=r"^(\d{4}(-\d\d(-\d\d)?)?|undated)$")]  # ISO 8601


class PublishedRow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One row of a published table, with the figures as printed there."""

    name: str | None = None  # the document's name of the row, if GPUs and batch do not identify it
    case: str | None = None  # id of the case that does this work; None: there is none
    strategy: str | None = None
    world_size: Annotated[int, Meta(ge=1)]
    batch_size: Annotated[int, Meta(ge=1)] | None = None  # per rank
    step_ms: Figure | None = None
    throughput: Figure | None = None  # units of the table per second, over all ranks
    bus_gb_per_s: Figure | None = None  # of a collective, as nccl-tests defines it; 10⁹ bytes
    speedup: Figure | None = None
    efficiency: Figure | None = None  # a fraction
    communication: Annotated[float, Meta(ge=0, lt=1)] | None = None  # its share of a step
    epochs: Annotated[int, Meta(ge=1)] | None = None
    epoch_s: Figure | None = None
    epochs_s: tuple[Figure, ...] = ()  # one figure for each epoch
    total_s: Figure | None = None
    total_speedup: Figure | None = None  # of the total time, if it differs from ``speedup``
    epoch_samples: Annotated[int, Meta(ge=1)] | None = None
    measured_steps: Annotated[int, Meta(ge=1)] | None = None
    measured_samples: Annotated[int, Meta(ge=1)] | None = None
    hours: Figure | None = None
    cost: Figure | None = None  # at the table's price
    cost_efficiency: Figure | None = None  # cost on 1 GPU ÷ this cost

    @property
    def label(self) -> str:
        """The name that identifies the row: "4 GPUs, batch 8 (AG News)"."""
        gpus = f"{self.world_size} GPU{'s' if self.world_size > 1 else ''}"
        batch = f", batch {self.batch_size}" if self.batch_size else ""
        return gpus + batch + (f" ({self.name})" if self.name else "")


class PublishedTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A table of a document, with the conditions of its measurement that the document states.

    ``work`` contains the parts of the work that the document states, by the dotted names of a
    case's fingerprint. ``inferred`` names the parts that it does not state: there the case's value
    is an inference or a choice of this suite.
    """

    name: str
    document: str
    url: str | None = None  # of the document at that revision; None: unknown
    revision: str | None = None  # commit or version of the document; None: it has none
    date: Date | None = None  # of that revision; None: unknown
    where: str  # the place of the table in the document: its section, for example
    hardware: str
    # How the GPUs are linked, if the document states it for figures of GPUs that it does not name.
    link: Literal["nvlink", "pcie"] | None = None
    modelled: bool = False  # its authors expected or extrapolated the figures
    scaling: Literal["weak", "strong"] = "weak"  # the document's own term
    unit: str = "samples"
    price_per_gpu_hour: Figure | None = None
    work: dict[str, Scalar] = {}
    inferred: tuple[str, ...] = ()
    steps: int | None = None  # of the document's measurement, with warm-ups
    warmup: int | None = None
    tolerance: Fraction = 0.0  # if more is needed than `STATED` or `INFERRED`; ``remark`` says why
    remark: str = ""
    rows: Annotated[tuple[PublishedRow, ...], Meta(min_length=1)]

    @property
    def shortfall(self) -> float:
        """The shortfall that still counts as met, as a fraction: a figure here has no spread."""
        return max(self.tolerance, INFERRED if self.inferred else STATED)

    def kept_batch(self, row: PublishedRow) -> int | None:
        """Return the batch that every number of ranks keeps: per rank (weak), or global (strong).

        None: it is not stated.
        """
        if row.batch_size is None or self.scaling == "weak":
            return row.batch_size
        return row.batch_size * row.world_size
