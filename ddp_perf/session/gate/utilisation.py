"""The utilisation of the GPUs (MFU) by a case, and the check that it is possible."""

from __future__ import annotations

import statistics

import msgspec

from ddp_perf.core.measurement import Measurement
from ddp_perf.stats.mfu import mfu
from ddp_perf.stats.peaks import peak_flops


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """The utilisation of the rank with the most operations, over the typical step."""

    accelerator: str
    precision: str
    flops: int  # of a step
    step_s: float
    peak: float | None  # FLOP/s; None: no dense peak is known

    @property
    def mfu(self) -> float | None:
        return None if self.peak is None else mfu(self.flops, self.step_s, self.peak)

    @property
    def is_impossible(self) -> bool:
        """True if it exceeds the hardware's peak: then the time or the count is wrong."""
        return self.mfu is not None and self.mfu > 1

    def __str__(self) -> str:
        if self.peak is None or self.mfu is None:
            return f"none: no dense {self.precision} peak of {self.accelerator} is known"
        return f"{self.mfu:.1%} of {self.peak / 1e12:g} TFLOP/s ({self.precision}, dense)"


def utilisation_of(measurement: Measurement, accelerator: str) -> Utilisation | None:
    """Return the utilisation; None on the CPU tier, for a script, or if nothing was counted."""
    launches, case = measurement.launches, measurement.case
    counted = [rank.flops for launch in launches for rank in launch.ranks if rank.flops]
    if case.tier != "gpu" or case.precision is None or not counted:
        return None
    return Utilisation(
        accelerator=accelerator,
        precision=case.precision,
        flops=max(counted),
        step_s=statistics.median(launch.typical_step_s for launch in launches),
        peak=peak_flops(accelerator, case.precision),
    )
