"""Reads of device values by the host. The host waits for each, and its lead ends."""

from __future__ import annotations

from typing import Any

import torch

from ddp_perf.torch_compat import TorchDispatchMode, uncompiled
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import Training


def count_host_reads(
    training: Training, device: torch.device, *, of_optimizer: bool = False
) -> StepPlan[int]:
    """Count the values of the device that the next step reads on the host, as ``.item()`` does.

    The reads of phase "optimizer" are left out unless ``of_optimizer``: on a CPU the optimizer
    reads its own step count.
    """
    counter = _ReadCounter(device, of_optimizer=of_optimizer)
    with training.observe(counter.end_phase), uncompiled(), counter:
        yield
    return counter.count


class _ReadCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, device: torch.device, *, of_optimizer: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of_optimizer = of_optimizer
        self.count = 0
        self._device = device
        self._in_phase = 0

    def end_phase(self, phase: str) -> None:
        """Add the reads of the phase that ended, unless they are left out."""
        if phase != "optimizer" or self._of_optimizer:
            self.count += self._in_phase
        self._in_phase = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self._in_phase += int(args[0].device == self._device)
        return func(*args, **(kwargs or {}))
