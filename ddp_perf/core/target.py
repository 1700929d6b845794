"""Absolute targets of a case: what its figures must be, whatever a baseline contains."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

import msgspec

_SHARE = {"": 1.0, "%": 0.01}


class TargetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that may have a target. A target is in SI units, and a share is a fraction."""

    name: str
    title: str
    at_least: bool  # higher is better, so that a target is a lower bound
    units: Mapping[str, float]  # how a target may be written, and the size of each unit
    example: str
    several_ranks: bool = False  # one rank does not have it
    has_stalls: bool = False  # it contains every stall, as the mean step does


EFFICIENCY_TARGET = TargetSpec(
    name="efficiency",
    title="efficiency",
    at_least=True,
    units=_SHARE,
    example=">= 0.85",
    several_ranks=True,
    has_stalls=True,
)
EXPOSED = TargetSpec(
    name="exposed_communication",
    title="exposed communication",
    at_least=False,
    units=_SHARE,
    example="<= 0.15",
    several_ranks=True,
)
THROUGHPUT = TargetSpec(
    name="throughput",
    title="throughput",
    at_least=True,
    units={"": 1.0, "/rank": 1.0},
    example=">= 1150/rank",
    has_stalls=True,
)
STEP_TIME = TargetSpec(
    name="step_time",
    title="step time",
    at_least=False,
    units={"ms": 1e-3, "s": 1.0, "us": 1e-6},
    example="<= 120 ms",
)
MFU = TargetSpec(name="mfu", title="MFU", at_least=True, units=_SHARE, example=">= 0.35")
PEAK_MEMORY = TargetSpec(
    name="peak_memory",
    title="peak memory",
    at_least=False,
    units={"GB": 1e9, "GiB": 2**30, "MB": 1e6, "MiB": 2**20},
    example="<= 14 GB",
)
BUS_BANDWIDTH = TargetSpec(
    name="busbw",
    title="bus bandwidth",
    at_least=True,
    units={"GB/s": 1e9, "MB/s": 1e6},
    example=">= 11 GB/s",
    has_stalls=True,
)
TARGET_SPECS = {
    spec.name: spec
    for spec in (EFFICIENCY_TARGET, EXPOSED, THROUGHPUT, STEP_TIME, MFU, PEAK_MEMORY, BUS_BANDWIDTH)
}


class PublishedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that others published of the case's work on this GPU."""

    value: float  # in SI units
    source: str  # the document and its table
    shortfall: float  # that still counts as met, as a fraction
    inferred: tuple[str, ...] = ()  # what the document does not state of the work


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One target of a case: its suite states it, or it follows from a published figure."""

    figure: str  # of `TARGET_SPECS`
    bound: float  # in SI units
    unit: str  # as it was written
    file: str  # the suite file, or the file with the published figure
    accelerators: tuple[str, ...] = ()  # patterns of the accelerator's key; empty: any
    published: PublishedFigure | None = None  # None: the suite states the target

    @property
    def spec(self) -> TargetSpec:
        return TARGET_SPECS[self.figure]

    @property
    def metric(self) -> str:
        """The metric of its finding: ``target:efficiency``."""
        return target_metric(self.figure)

    @property
    def per_rank(self) -> bool:
        return self.unit == "/rank"

    def holds_on(self, accelerator_key: str) -> bool:
        """Return whether it is a target of this accelerator."""
        return not self.accelerators or any(
            fnmatch.fnmatchcase(accelerator_key.lower(), pattern.lower())
            for pattern in self.accelerators
        )


def target_metric(figure: str) -> str:
    """Return the metric of the finding on a figure's target."""
    return f"target:{figure}"


def targets_on(accelerator_key: str, targets: Iterable[Target]) -> dict[str, Target]:
    """Return the targets on an accelerator by metric: of each figure the first one that fits."""
    chosen: dict[str, Target] = {}
    for target in targets:
        if target.holds_on(accelerator_key):
            chosen.setdefault(target.metric, target)
    return chosen
