"""The batches that a script's data loader gets from its worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ddp_perf.worker.script.patching import patched


@contextlib.contextmanager
def unrecorded_batches() -> Iterator[None]:
    """Let no mode see the operations that receive a worker's batch, inside the ``with`` block.

    Batches come when they are ready, in any order: two may come in one step, and none in the next.
    """
    with patched(_MultiProcessingDataLoaderIter, "_get_data", _receive_unseen):
        yield


def _receive_unseen(receive: Callable[[Any], Any], loader: Any) -> Any:
    with _disable_current_modes():
        return receive(loader)
