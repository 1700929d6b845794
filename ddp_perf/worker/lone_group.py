"""The process group of one rank that runs alone, as one of many, in a group that does nothing."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ddp_perf.stats.link import ModelKind
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

    def __init__(self, rank: int, size: int, devices: Sequence[str] = ("cpu",)) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        kind = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(kind)
        for device in devices:
            self._register_backend(torch.device(device), kind, fake_backend(rank, size))

    def work(self, kind: ModelKind, args: tuple[Any, ...]) -> dist.Work:
        """Return the work of a collective that was dispatched with these arguments.

        ``kind`` is one with as many messages and bytes: that of a scatter is an all-gather.
        """
        return finished(args[0])

    def allreduce(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.allreduce(self, *args, **kw)
        return self.work("all_reduce", (*args, *kw.values()))

    def allreduce_coalesced(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.allreduce_coalesced(self, *args, **kw)
        return self.work("all_reduce", (*args, *kw.values()))

    def broadcast(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.broadcast(self, *args, **kw)
        return self.work("broadcast", (*args, *kw.values()))

    def reduce(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.reduce(self, *args, **kw)
        return self.work("broadcast", (*args, *kw.values()))

    def barrier(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.barrier(self, *args, **kw)
        return self.work("all_reduce", ([],))

    def monitored_barrier(self, *args: Any, **kw: Any) -> None:
        self.barrier().wait()

    def allgather(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.allgather(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def allgather_coalesced(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.allgather_coalesced(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def allgather_into_tensor_coalesced(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.allgather_into_tensor_coalesced(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def _allgather_base(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE._allgather_base(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def all_gather_single(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.all_gather_single(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def gather(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.gather(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def reduce_scatter(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.reduce_scatter(self, *args, **kw)
        return self.work("reduce_scatter", (*args, *kw.values()))

    def reduce_scatter_tensor_coalesced(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.reduce_scatter_tensor_coalesced(self, *args, **kw)
        return self.work("reduce_scatter", (*args, *kw.values()))

    def _reduce_scatter_base(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE._reduce_scatter_base(self, *args, **kw)
        return self.work("reduce_scatter", (*args, *kw.values()))

    def reduce_scatter_single(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.reduce_scatter_single(self, *args, **kw)
        return self.work("reduce_scatter", (*args, *kw.values()))

    def scatter(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.scatter(self, *args, **kw)
        return self.work("all_gather", (*args, *kw.values()))

    def alltoall(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.alltoall(self, *args, **kw)
        return self.work("all_to_all", (*args, *kw.values()))

    def alltoall_base(self, *args: Any, **kw: Any) -> dist.Work:
        _ISSUE.alltoall_base(self, *args, **kw)
        return self.work("all_to_all", (*args, *kw.values()))


def _make_group(store: dist.Store, rank: int, size: int, timeout: Any) -> LoneGroup:
    return LoneGroup(rank, size)
