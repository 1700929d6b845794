"""The calls by which user code copies to the host, or waits for the GPU, without an operation.

On a CPU, where a step is counted, ``tensor.cpu()``, ``tolist()`` and ``numpy()`` dispatch nothing.
On a GPU the host waits in each of them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from ddp_perf.worker.counted.origin import Origin, origin_of

_METHODS = ("cpu", "tolist", "numpy", "to")
_USERS = frozenset({Origin.USER, Origin.WORKLOADS})


@contextlib.contextmanager
def note_host_copies(note: Callable[[str, str], None]) -> Iterator[None]:
    """Call ``note(name, dtype)`` for each such call of the user's inside the ``with`` block.

    ``to`` is one if it names the device "cpu". The names are in ``HOST_READS``.
    """
    own = {name: torch.Tensor.__dict__.get(name) for name in _METHODS}
    synchronize = torch.cuda.synchronize
    for name in _METHODS:
        setattr(torch.Tensor, name, _noted(name, getattr(torch.Tensor, name), note))
    torch.cuda.synchronize = _noted_wait(note)
    try:
        yield
    finally:
        torch.cuda.synchronize = synchronize
        for name, method in own.items():
            if method is None:
                delattr(torch.Tensor, name)  # that of its C base shows again
            else:
                setattr(torch.Tensor, name, method)


def _noted(name: str, method: Any, note: Callable[[str, str], None]) -> Any:
    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        device = args[0] if args else kwargs.get("device")
        copies = name != "to" or (isinstance(device, str) and device == "cpu")
        if copies and _is_users(sys._getframe(1).f_code):
            note("copy_to_host", str(tensor.dtype).removeprefix("torch."))
        return method(tensor, *args, **kwargs)

    return call


def _noted_wait(note: Callable[[str, str], None]) -> Any:
    def synchronize(device: object = None) -> None:
        if _is_users(sys._getframe(1).f_code):
            note("synchronize", "none")

    return synchronize


def _is_users(code: CodeType) -> bool:
    return origin_of(code.co_filename) in _USERS
