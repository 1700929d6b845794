"""The source of a case's batches."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ddp_perf.core.subject import MODELS

DATA_FOLDER = "DDP_PERF_DATA"  # the environment variable that names the folder of real texts
Source = Literal["synthetic", "files"]


class DataOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the data. Default: one batch of random samples, made on the device beforehand."""

    num_workers: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Measure data loading: every step takes its batch from a DataLoader with"
            " so many worker processes (0: it loads in the rank itself). null: one batch, made"
            " before the steps."
        ),
    ] = None
    source: Annotated[
        Source,
        Meta(
            description="files: the published texts in the folder that the environment variable"
            " DDP_PERF_DATA names; set it, and every suite of texts reads them."
        ),
    ] = "synthetic"

    def chosen(self) -> dict[str, int | str]:
        """Return the options that differ from their default, by name."""
        default, given = msgspec.structs.asdict(DataOptions()), msgspec.structs.asdict(self)
        return {name: value for name, value in given.items() if value != default[name]}


def has_texts(workload: str) -> bool:
    """Return whether the workload is one of the package's own and trains on texts."""
    return workload in MODELS and "dataset" in MODELS[workload].__struct_fields__
