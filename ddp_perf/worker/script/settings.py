"""The settings of torch that a script may leave in force while the measurement computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_DEVICES = ("cpu", "cuda")


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Compute in FP32 unless stated otherwise in the ``with`` block, as in a fresh process."""
    dtype = torch.get_default_dtype()
    casts = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if dtype is torch.float32 and not casts:  # as nearly always, and within a timed step
        yield
        return
    torch.set_default_dtype(torch.float32)
    for device in casts:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        for device in casts:
            torch.set_autocast_enabled(device, True)
