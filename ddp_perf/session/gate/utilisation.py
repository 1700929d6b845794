"""The utilisation of the GPUs (MFU) by a case, and the check that it is possible."""

from __future__ import annotations

import statistics

import msgspec

from ddp_perf.core.measurement import Measurement
from ddp_perf.stats.hardware import common_peak, largest_peak
from ddp_perf.stats.mfu import mfu


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The utilisation of the rank with the most operations, over the typical step."""

    accelerator: str
    flops: int  # of a step
    by_format: dict[str, int]  # the same, by the format that they are computed in
    step_s: float

    @property
    def peak(self) -> float | None:
        """FLOP/s of these operations at their dense peaks; None: one of the peaks is unknown."""
        return common_peak(self.accelerator, self.by_format)

    @property
    def mfu(self) -> float | None:
        """It is None if the peak is unknown, or if the GPU used a faster format than counted."""
        share = None if self.peak is None else mfu(self.flops, self.step_s, self.peak)
        return None if share is None or share > 1 else share

    @property
    def is_impossible(self) -> bool:
        """True if no format of this GPU is so fast: then the time or the count is wrong."""
        largest = largest_peak(self.accelerator)
        return largest is not None and mfu(self.flops, self.step_s, largest) > 1

    def __str__(self) -> str:
        formats, rate = ", ".join(self.by_format), f"{self.flops / self.step_s / 1e12:g} TFLOP/s"
        if self.is_impossible:
            return f"{rate} are more than any format of {self.accelerator} allows"
        if not formats:
            return "none: the formats of its operations were not counted"
        if self.peak is None:
            return f"none: no dense peak of {self.accelerator} is known for all of: {formats}"
        peak = f"{self.peak / 1e12:.4g} TFLOP/s ({formats}, dense)"
        if self.mfu is None:
            return f"none: {rate} exceed {peak}, so the GPU used a faster format"
        return f"{self.mfu:.1%} of {peak}"


def utilisation_of(measurement: Measurement, accelerator: str) -> Utilisation | None:
    """Return the utilisation; None on the CPU tier, for a script, or if nothing was counted."""
    launches, case = measurement.launches, measurement.case
    counted = [rank for launch in launches for rank in launch.ranks if rank.flops]
    if case.tier != "gpu" or case.precision is None or not counted:
        return None
    most = max(counted, key=lambda rank: rank.flops or 0)
    return Utilisation(
        accelerator=accelerator,
        flops=most.flops or 0,
        by_format=most.flops_by_format,
        step_s=statistics.median(launch.typical_step_s for launch in launches),
    )
