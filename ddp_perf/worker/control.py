"""The control: a frozen reference operation, to tell a machine that moved from code that moved.

Its sizes are part of every stored baseline. They must never change.
"""

from __future__ import annotations

import torch

from ddp_perf.worker.clock import step_clock

REPEATS = 4  # before the steps, and again after them
_CPU_SIZE = 512
_CUDA_SIZE = 4096


class Control:
    """A square FP32 matrix product."""

    def __init__(self, device: torch.device) -> None:
        size = _CUDA_SIZE if device.type == "cuda" else _CPU_SIZE
        self._device = device
        self._factors = torch.full((2, size, size), 0.5, device=device).unbind()
        self._product = torch.empty(size, size, device=device)

    def times_s(self) -> list[float]:
        """Seconds of each of REPEATS products."""
        clock = step_clock(self._device, REPEATS)
        clock.mark()
        for _ in range(REPEATS):
            torch.mm(*self._factors, out=self._product)
            clock.mark()
        return clock.intervals_s(lambda: None)
