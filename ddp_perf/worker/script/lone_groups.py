"""The process groups of a script whose rank runs alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from ddp_perf.worker.counted.lone_group import LONE, register_lone_backend
from ddp_perf.worker.script.patching import patched


@contextlib.contextmanager
def lone_groups(rank: int, world_size: int) -> Iterator[None]:
    """Give code inside the ``with`` block lone groups, whatever backend and store it asks for.

    Its default group is that of ``rank``, unless it states another rank. Objects that another rank
    would broadcast are the rank's own.
    """
    register_lone_backend()

    def meet(
        rendezvous: object, url: object, own: int = -1, size: int = -1, **options: object
    ) -> Iterator[tuple[dist.Store, int, int]]:
        yield dist.HashStore(), rank if own < 0 else own, world_size if size < 0 else size

    with contextlib.ExitStack() as stack:
        for owner, name, around in (
            # Private ones: whatever makes a group calls them, however the script imported that.
            (distributed_c10d, "rendezvous", meet),
            (distributed_c10d, "_new_process_group_helper", _make_lone_group),
            (distributed_c10d, "broadcast_object_list", _broadcast_own),
            (dist, "broadcast_object_list", _broadcast_own),
        ):
            stack.enter_context(patched(owner, name, around))
        yield


def _make_lone_group(
    make: Callable[..., Any],
    size: int,
    own: int,
    ranks: Any,
    backend: object,
    *args: Any,
    **kw: Any,
) -> Any:
    return make(size, own, ranks, LONE, *args, **{**kw, "device_id": None})


def _broadcast_own(
    broadcast: Callable[..., None],
    objects: list[Any],
    src: object = None,
    group: Any = None,
    device: Any = None,
    **options: object,
) -> None:
    broadcast(objects, dist.get_rank(), group, device)
