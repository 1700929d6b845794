"""The process group of one rank that runs alone, as one of many, in a group that does nothing."""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ddp_perf.core.subject import CollectiveKind
from ddp_perf.torch_compat import fake_backend, work_of

LONE = "lone"  # the name of the backend


def init_lone_group(rank: int, world_size: int) -> None:
    """Make the default process group that of ``rank``, which has no other process to meet."""
    register_lone_backend()
    dist.init_process_group(LONE, store=dist.HashStore(), rank=rank, world_size=world_size)


def register_lone_backend() -> None:
    """Let torch make groups by the name LONE."""
    if LONE not in dist.Backend.backend_list:
        dist.Backend.register_backend(LONE, _make_group, devices=["cpu"])


def finished(result: Any) -> dist.Work:
    """Return the work of a collective that is done, whose future holds ``result`` in a list."""
    future: Future[Any] = Future()
    future.set_result(as_list(result))
    return work_of(future)


def as_list(result: Any) -> list[Any]:
    """Return what a collective writes to, as the future of its work has it."""
    return result if isinstance(result, list) else [result]


# The methods below ours as torch defines them, whoever patches them while a step is observed.
_ISSUE: Any = types.SimpleNamespace(**vars(dist.ProcessGroup))


class LoneGroup(dist.ProcessGroup):
    """A group whose collectives are dispatched, and leave what they reduce as it is.

    Each gathered share is this rank's own. DDP's reducer and communication hooks use the result of
    a collective's future, which torch's fake group, below this one, does not give. Each method has
    the name and the ``self`` by which torch finds that it is already inside it.
    """

    def __init__(self, rank: int, size: int, device: str = "cpu") -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        self._register_backend(torch.device(device), kind, fake_backend(rank, size))

    def work(self, kind: CollectiveKind, args: tuple[Any, ...]) -> dist.Work:
        """Return the work of a collective that was dispatched with these arguments.

        ``kind`` is the one of the four with as many messages and bytes: an all-to-all sends what a
        reduce-scatter does.
        """
        return finished(args[0])

    def allreduce(self, *args: Any) -> dist.Work:
        _ISSUE.allreduce(self, *args)
        return self.work("all_reduce", args)

    def allreduce_coalesced(self, *args: Any) -> dist.Work:
        _ISSUE.allreduce_coalesced(self, *args)
        return self.work("all_reduce", args)

    def broadcast(self, *args: Any) -> dist.Work:
        _ISSUE.broadcast(self, *args)
        return self.work("broadcast", args)

    def reduce(self, *args: Any) -> dist.Work:
        _ISSUE.reduce(self, *args)
        return self.work("broadcast", args)

    def allgather(self, *args: Any) -> dist.Work:
        _ISSUE.allgather(self, *args)
        return self.work("all_gather", args)

    def _allgather_base(self, *args: Any) -> dist.Work:
        _ISSUE._allgather_base(self, *args)
        return self.work("all_gather", args)

    def all_gather_single(self, *args: Any) -> dist.Work:
        _ISSUE.all_gather_single(self, *args)
        return self.work("all_gather", args)

    def reduce_scatter(self, *args: Any) -> dist.Work:
        _ISSUE.reduce_scatter(self, *args)
        return self.work("reduce_scatter", args)

    def _reduce_scatter_base(self, *args: Any) -> dist.Work:
        _ISSUE._reduce_scatter_base(self, *args)
        return self.work("reduce_scatter", args)

    def reduce_scatter_single(self, *args: Any) -> dist.Work:
        _ISSUE.reduce_scatter_single(self, *args)
        return self.work("reduce_scatter", args)

    def alltoall(self, *args: Any) -> dist.Work:
        _ISSUE.alltoall(self, *args)
        return self.work("reduce_scatter", args)

    def alltoall_base(self, *args: Any) -> dist.Work:
        _ISSUE.alltoall_base(self, *args)
        return self.work("reduce_scatter", args)


def _make_group(store: dist.Store, rank: int, size: int, timeout: Any) -> LoneGroup:
    return LoneGroup(rank, size)
