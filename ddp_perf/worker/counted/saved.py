"""The tensors that a forward saves for its backward."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

import torch

from ddp_perf.torch_compat import paused_saved_hooks
from ddp_perf.worker.counted.memory import MemoryTracker
from ddp_perf.worker.counted.traffic import storages


class SavedTensors:
    """A counter of the storages that autograd holds at the end of a forward.

    Parameters, buffers and a batch that serves all steps are not counted: they live anyway, and so
    does all that was there before the tracked step. A checkpointed block saves its input only.
    """

    def __init__(self, memory: MemoryTracker) -> None:
        self.count = self.bytes = 0  # of the forward that saves most
        self._memory = memory
        self._held: weakref.WeakSet[_Saved] = weakref.WeakSet()

    @contextlib.contextmanager
    def observe(self) -> Iterator[None]:
        """Count what is saved inside the ``with`` block. The hooks dispatch views of their own."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack), paused_saved_hooks():
            yield

    def end_phase(self, phase: str) -> None:
        """Count, if it was a forward."""
        if phase == "forward":
            held = {
                storage._cdata: storage.nbytes()
                for saved in self._held
                for storage in storages(saved.tensor)
                if storage in self._memory and storage.nbytes()
            }
            self.count = max(self.count, len(held))
            self.bytes = max(self.bytes, sum(held.values()))

    def _pack(self, tensor: torch.Tensor) -> _Saved:
        saved = _Saved(tensor)
        self._held.add(saved)
        return saved


class _Saved:
    """A saved tensor. It lives as long as autograd holds it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _unpack(saved: _Saved) -> torch.Tensor:
    return saved.tensor
