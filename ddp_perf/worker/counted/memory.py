"""The memory of a step by counting storages: when they are allocated, and when they are freed."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ddp_perf.worker.counted.traffic import storages
from ddp_perf.worker.counting.sites import Spot


class _Storage(NamedTuple):
    reference: weakref.ref[torch.UntypedStorage]
    bytes: int
    spot: Spot


class MemoryTracker:
    """A tracker of the storages that operations allocate.

    The Python object of a storage lives as long as the storage, also where only C++ uses it. So a
    weak reference shows when the memory is freed.
    """

    def __init__(self) -> None:
        self._storages: dict[int, _Storage] = {}  # by address; only those that live
        self.begin_step()

    def begin_step(self) -> None:
        """Count from here on: what lives now is the level zero, and held by the step."""
        self.held: Counter[Spot] = Counter()  # bytes
        for storage in self._storages.values():
            self.held[storage.spot] += storage.bytes
        self.allocations = self.allocated = 0
        self.peak = self._level = 0
        self.kept: Counter[Spot] = Counter()  # bytes, net of what was freed

    def __contains__(self, storage: torch.UntypedStorage) -> bool:
        """Return whether an operation allocated ``storage`` since the tracker began."""
        return storage._cdata in self._storages

    def add(self, out: Any, given: Any, spot: Spot) -> None:
        """Add the storages of an operation's results ``out`` that are not in its arguments."""
        there = {storage._cdata for storage in storages(given)}
        for storage in storages(out):
            if storage._cdata not in there and storage not in self:
                self._set(storage, storage.nbytes(), spot)

    @contextlib.contextmanager
    def track_resizing(self, spot: Any) -> Iterator[None]:
        """Note resized storages inside the ``with`` block: FSDP empties storages, and fills them.

        ``spot`` is called for the place where that happens.
        """
        original = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            before = storage.nbytes()
            if storage not in self:
                self._hold(storage, before, spot())
            result = original(storage, size)
            held = self._storages.pop(storage._cdata)
            self._change(-held.bytes, held.spot)
            self._set(storage, storage.nbytes(), held.spot)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]

    def _set(self, storage: torch.UntypedStorage, size: int, spot: Spot) -> None:
        if size:
            self.allocations += 1
            self.allocated += size
        self._hold(storage, size, spot)
        self._change(size, spot)

    def _hold(self, storage: torch.UntypedStorage, size: int, spot: Spot) -> None:
        forget = functools.partial(self._forget, storage._cdata)
        self._storages[storage._cdata] = _Storage(weakref.ref(storage, forget), size, spot)

    def _forget(self, address: int, reference: weakref.ref[torch.UntypedStorage]) -> None:
        held = self._storages.get(address)
        if held is not None and held.reference is reference:
            del self._storages[address]
            self._change(-held.bytes, held.spot)

    def _change(self, size: int, spot: Spot) -> None:
        self._level += size
        self.kept[spot] += size
        self.peak = max(self.peak, self._level)


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage, then none inside the ``with`` block: it would free memory at any time."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
