"""A reader of a machine's GPUs: through NVML, or from a recording of another machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ddp_perf.core.gpu import Gpu, GpuHealth, GpuMachine


class GpuReader(Protocol):
    """A reader of the GPUs of this machine, or of one that was recorded."""

    def machine(self) -> GpuMachine:
        """Return all GPUs, also those that CUDA_VISIBLE_DEVICES hides; none without a driver."""
        ...

    def health(self, gpus: Sequence[Gpu]) -> tuple[GpuHealth, ...]:
        """Return the present state of these GPUs, in their order."""
        ...
