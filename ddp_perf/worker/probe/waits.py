"""Places where Python code waits for communication, each call of them bracketed.

Work and futures have ``wait``. From torch 2.8 on NCCL returns no work for a call that is not
asynchronous: the call itself waits then. DDP broadcasts its buffers, and waits for them in C++,
within one Python method; for its gradient buckets it waits in C++ alone, which is not seen here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._C._distributed_c10d import ProcessGroup, Work
from torch.nn.parallel import DistributedDataParallel

Note = Callable[[bool], None]  # whether what came before was a wait

_ISSUING = (
    *("allreduce", "allreduce_coalesced", "broadcast", "reduce", "barrier"),
    *("allgather", "_allgather_base", "allgather_into_tensor_coalesced", "gather"),
    *("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "scatter"),
    *("alltoall", "alltoall_base"),
)


@contextlib.contextmanager
def waits_noted(module: nn.Module, note: Note) -> Iterator[None]:
    """``note(False)`` before each wait, ``note(True)`` after it, until the end."""
    with contextlib.ExitStack() as stack:
        for owner in (Work, torch.futures.Future):
            stack.enter_context(_bracketed(owner, "wait", note, lambda done: True))
        for name in _ISSUING:
            if hasattr(ProcessGroup, name):
                stack.enter_context(_bracketed(ProcessGroup, name, note, lambda work: work is None))
        if isinstance(module, DistributedDataParallel):
            stack.enter_context(_bracketed(module, "_sync_buffers", note, lambda done: True))
        yield


@contextlib.contextmanager
def _bracketed(owner: Any, name: str, note: Note, waited: Callable[[Any], bool]) -> Iterator[None]:
    """``waited`` tells by what the call returned whether it was a wait."""
    own = vars(owner).get(name)  # as it lies there: taken through the class, it is bound to none
    call = getattr(owner, name)

    @functools.wraps(call)
    def noted(*args: Any, **kwargs: Any) -> Any:
        note(False)
        done = call(*args, **kwargs)
        note(waited(done))
        return done

    setattr(owner, name, noted)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
