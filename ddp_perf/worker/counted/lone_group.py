"""The process group of one rank that runs alone, as one of many, in a group that does nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.futures import Future

from ddp_perf.torch_compat import fake_backend, work_of
from ddp_perf.worker.replaced import replaced

LONE = "lone"  # the name of the backend


def init_lone_group(rank: int, world_size: int) -> None:
    """Make the default process group that of ``rank``, which has no other process to meet."""
    _register()
    dist.init_process_group(LONE, store=dist.HashStore(), rank=rank, world_size=world_size)


@contextlib.contextmanager
def lone_groups(rank: int, world_size: int) -> Iterator[None]:
    """Give code inside the ``with`` block lone groups, whatever backend and store it asks for.

    Its default group is that of ``rank``, unless it states another rank. Objects that another rank
    would broadcast are the rank's own. What makes a group is replaced by private names: all that
    make one call them, however the code imported those.
    """
    _register()
    make_group = distributed_c10d._new_process_group_helper
    broadcast = dist.broadcast_object_list

    def meet(url: object, own: int = -1, size: int = -1, **options: object) -> Iterator[Any]:
        yield dist.HashStore(), rank if own < 0 else own, world_size if size < 0 else size

    def make_lone_group(size: int, own: int, ranks: Any, _: object, *args: Any, **kw: Any) -> Any:
        return make_group(size, own, ranks, LONE, *args, **{**kw, "device_id": None})

    def broadcast_own(
        objects: list[Any], src: Any = None, group: Any = None, device: Any = None, **_: object
    ) -> None:
        broadcast(objects, dist.get_rank(), group, device)

    with (
        replaced(dist, "broadcast_object_list", broadcast_own),
        replaced(distributed_c10d, "broadcast_object_list", broadcast_own),
        replaced(distributed_c10d, "rendezvous", meet),
        replaced(distributed_c10d, "_new_process_group_helper", make_lone_group),
    ):
        yield


def _register() -> None:
    if LONE not in dist.Backend.backend_list:
        dist.Backend.register_backend(LONE, _make_group, devices=["cpu"])


def finished(result: Any) -> dist.Work:
    """Return the work of a collective that is done, whose future holds ``result`` in a list."""
    future: Future[Any] = Future()
    future.set_result(result if isinstance(result, list) else [result])
    return work_of(future)


class LoneGroup(dist.ProcessGroup):
    """A group whose collectives are dispatched, and leave what they reduce as it is.

    Each gathered share is this rank's own. DDP's reducer and communication hooks use the result of
    a collective's future, which torch's fake group, below this one, does not give. Each method has
    the name and the ``self`` by which torch finds that it is already inside it.
    """

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device("cpu"), kind, fake_backend(rank, size))

    def allreduce(self, *args: Any) -> dist.Work:
        super().allreduce(*args)
        return finished(args[0])

    def allreduce_coalesced(self, *args: Any) -> dist.Work:
        super().allreduce_coalesced(*args)
        return finished(args[0])

    def broadcast(self, *args: Any) -> dist.Work:
        super().broadcast(*args)
        return finished(args[0])

    def reduce(self, *args: Any) -> dist.Work:
        super().reduce(*args)
        return finished(args[0])

    def allgather(self, *args: Any) -> dist.Work:
        super().allgather(*args)
        return finished(args[0])

    def _allgather_base(self, *args: Any) -> dist.Work:
        super()._allgather_base(*args)
        return finished(args[0])

    def all_gather_single(self, *args: Any) -> dist.Work:
        super().all_gather_single(*args)
        return finished(args[0])

    def reduce_scatter(self, *args: Any) -> dist.Work:
        super().reduce_scatter(*args)
        return finished(args[0])

    def _reduce_scatter_base(self, *args: Any) -> dist.Work:
        super()._reduce_scatter_base(*args)
        return finished(args[0])

    def reduce_scatter_single(self, *args: Any) -> dist.Work:
        super().reduce_scatter_single(*args)
        return finished(args[0])

    def alltoall(self, *args: Any) -> dist.Work:
        super().alltoall(*args)
        return finished(args[0])

    def alltoall_base(self, *args: Any) -> dist.Work:
        super().alltoall_base(*args)
        return finished(args[0])


def _make_group(store: dist.Store, rank: int, size: int, timeout: Any) -> LoneGroup:
    return LoneGroup(rank, size)
