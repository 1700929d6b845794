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

    asked: dict[Any, str] = {}  # by group: a script may choose by it what else it does

    def make_group(make: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        size, own, ranks, wanted, *others = args
        group, store = make(size, own, ranks, backend, *others, **{**kw, "device_id": None})
        asked[group] = str(wanted)
        return group, store

    def backend_of(get: Callable[..., str], group: Any = None) -> str:
        return asked.get(dist.group.WORLD if group is None else group) or get(group)

    with contextlib.ExitStack() as stack:
        for owner, name, around in (
            # Private ones: whatever makes a group calls them, however the script imported that.
            (distributed_c10d, "rendezvous", meet),
            (distributed_c10d, "_new_process_group_helper", make_group),
            (distributed_c10d, "get_backend", backend_of),
            (dist, "get_backend", backend_of),
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
