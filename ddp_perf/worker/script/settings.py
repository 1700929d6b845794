"""The settings of torch that a script may leave in force while the measurement computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch

_DEVICES = ("cpu", "cuda")
_UNCHANGED = contextlib.nullcontext()


def own_settings() -> AbstractContextManager[None]:
    """Compute in FP32 unless stated otherwise in the ``with`` block, as in a fresh process."""
    # This is called in each timed step, where the settings are nearly always these.
    casts = any(map(torch.is_autocast_enabled, _DEVICES))
    is_own = torch.get_default_dtype() is torch.float32 and not casts
    return _UNCHANGED if is_own else _changed_settings()


@contextlib.contextmanager
def _changed_settings() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    casts = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    torch.set_default_dtype(torch.float32)
    for device in casts:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        for device in casts:
            torch.set_autocast_enabled(device, True)
