"""The process groups of a script whose rank runs alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ddp_perf.worker.script.hooks import patched


@contextlib.contextmanager
def groups_of(backend: str, rank: int, world_size: int) -> Iterator[None]:
    """Give code in the ``with`` block groups of this backend, whatever it and its store ask for.

    Its default group is that of ``rank``, unless it states another rank. Objects that another rank
    would broadcast are the rank's own.
    """

    def meet(
        rendezvous: object, url: object, own: int = -1, size: int = -1, **options: object
    ) -> Iterator[tuple[dist.Store, int, int]]:
        yield dist.HashStore(), rank if own < 0 else own, world_size if size < 0 else size

    def make_group(make: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        size, own, ranks, _backend, *others = args
        return make(size, own, ranks, backend, *others, **{**kw, "device_id": None})

    with contextlib.ExitStack() as stack:
        for owner, name, around in (
            # Private ones: whatever makes a group calls them, however the script imported that.
            (distributed_c10d, "rendezvous", meet),
            (distributed_c10d, "_new_process_group_helper", make_group),
            (distributed_c10d, "broadcast_object_list", _broadcast_own),
            (dist, "broadcast_object_list", _broadcast_own),
        ):
            stack.enter_context(patched(owner, name, around))
        yield


def _broadcast_own(
    broadcast: Callable[..., None],
    objects: list[Any],
    src: object = None,
    group: Any = None,
    device: Any = None,
    **options: object,
) -> None:
    broadcast(objects, dist.get_rank(), group, device)
