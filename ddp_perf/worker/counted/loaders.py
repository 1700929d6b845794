"""The batches that a script's data loader gets from its worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ddp_perf.worker.replaced import replaced


@contextlib.contextmanager
def unrecorded_batches() -> Iterator[None]:
    """Let no mode see the operations that receive a worker's batch, inside the ``with`` block.

    Batches come when they are ready, in any order: two may come in one step, and none in the next.
    """
    receive = _MultiProcessingDataLoaderIter._get_data

    def receive_unseen(loader: Any) -> Any:
        with _disable_current_modes():
            return receive(loader)  # type: ignore[no-untyped-call]

    with replaced(_MultiProcessingDataLoaderIter, "_get_data", receive_unseen):
        yield
