"""Observation of the calls in which Python code waits for communication.

Work and futures have ``wait``. From torch 2.8 on NCCL returns no work for a synchronous call: the
call itself waits then. DDP broadcasts its buffers and waits for them in C++, within one Python
method, which is observed. DDP waits for its gradient buckets in C++ only: those waits are not
observed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup, Work
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.torch_compat.internals import BUFFER_BROADCAST, ISSUING_METHODS

Note = Callable[[bool], None]  # its argument: whether the time before the call was a wait


@contextlib.contextmanager
def note_waits(module: nn.Module, note: Note) -> Iterator[None]:
    """Call ``note(False)`` before each wait and ``note(True)`` after it, in the ``with`` block.

    A call that turns out not to have waited ends with ``note(False)``.
    """
    with contextlib.ExitStack() as stack:
        for owner in (Work, torch.futures.Future):
            stack.enter_context(_patched(owner, "wait", note, lambda done: True))
        for name in ISSUING_METHODS:
            if hasattr(ProcessGroup, name):
                stack.enter_context(_patched(ProcessGroup, name, note, lambda work: work is None))
        if isinstance(module, DistributedDataParallel):
            stack.enter_context(_patched(module, BUFFER_BROADCAST, note, lambda done: True))
        yield


@contextlib.contextmanager
def _patched(owner: Any, name: str, note: Note, waited: Callable[[Any], bool]) -> Iterator[None]:
    """Patch one method. ``waited(returned value)`` decides whether a call was a wait."""
    own = vars(owner).get(name)  # getattr of a pybind11 class gives a method that binds no instance
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
