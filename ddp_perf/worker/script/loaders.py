"""The batches that a script's data loader gets from its worker processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ddp_perf.torch_compat.internals import modes_disabled, worker_batches
from ddp_perf.worker.script.patching import patched


@contextlib.contextmanager
def unrecorded_batches() -> Iterator[None]:
    """Let no mode see the operations that receive a worker's batch, inside the ``with`` block.

    Batches come when they are ready, in any order: two may come in one step, and none in the next.
    """
    with patched(*worker_batches(), _receive_unseen):
        yield


def _receive_unseen(receive: Callable[[Any], Any], loader: Any) -> Any:
    with modes_disabled():
        return receive(loader)
