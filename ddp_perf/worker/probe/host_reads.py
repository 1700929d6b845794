"""Values of a device that its host waits for: each ends the host's lead."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.worker.steps.trainer import Trainer


def count_host_reads(trainer: Trainer, device: torch.device) -> int:
    """Of one step, as by ``.item()``; without the optimizer's, which reads its own step count."""
    counter, before = _ReadCounter(device), trainer.phase_done
    trainer.phase_done = counter.end
    with counter:
        trainer.step()
    trainer.phase_done = before
    return counter.count


class _ReadCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0
        self._device = device
        self._in_phase = 0

    def end(self, phase: str) -> None:
        """A phase is over: keep what it read."""
        if phase != "optimizer":
            self.count += self._in_phase
        self._in_phase = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self._in_phase += int(args[0].device == self._device)
        return func(*args, **(kwargs or {}))
