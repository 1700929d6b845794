"""Reads of device values by the host, and its other waits. With each of them its lead ends."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ddp_perf.torch_compat import TorchDispatchMode, uncompiled
from ddp_perf.worker.script.patching import patched
from ddp_perf.worker.steps.plan import StepPlan
from ddp_perf.worker.steps.protocol import Training

_WARNING = "called a synchronizing CUDA operation"  # of torch's debug mode


class HostReads(NamedTuple):
    """The reads of a step on the host."""

    values: int  # of the device, as .item() reads them
    waits: int | None  # of the host for its GPU, also for other reasons; None: it has no GPU


def count_host_reads(
    training: Training, device: torch.device, *, of_optimizer: bool = False
) -> StepPlan[HostReads]:
    """Count the values of the device that the next step reads on the host, and its waits.

    The reads of phase "optimizer" are left out unless ``of_optimizer``: on a CPU the optimizer
    reads its own step count.
    """
    counter = _ReadCounter(device, of_optimizer=of_optimizer)
    observed = training.observe(counter.end_phase)
    with _noted_waits(device) as waits, observed, uncompiled(), counter:
        yield
    return HostReads(counter.count, None if waits is None else len(waits))


@contextlib.contextmanager
def _noted_waits(device: torch.device) -> Iterator[list[str] | None]:
    """Note each wait of the host for its GPU in the ``with`` block; None if it has no GPU.

    Torch warns of copies to the host, ``nonzero`` and masks, and of a synchronised stream. It does
    not warn of a synchronised device or event.
    """
    if device.type != "cuda":
        yield None
        return
    waits: list[str] = []

    def note(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        waits.append(original.__name__)
        return original(*args, **kwargs)

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=_WARNING)
        show = warnings.showwarning

        def show_others(message: Warning | str, *args: Any, **kwargs: Any) -> None:
            if _WARNING in str(message):
                waits.append("warned")
            else:
                show(message, *args, **kwargs)

        warnings.showwarning = show_others
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with (
                patched(torch.cuda, "synchronize", note),
                patched(torch.cuda.Event, "synchronize", note),
            ):
                yield waits
        finally:
            torch.cuda.set_sync_debug_mode(mode)


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
