"""The number format of forward and backward."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from ddp_perf.core.case import Case
from ddp_perf.core.strategy import Precision

_COMPUTE_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def compute_dtype(precision: Precision) -> torch.dtype | None:
    """The half format to compute in; None: float32, which the parameters are in."""
    return _COMPUTE_DTYPES.get(precision)


def autocast(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """Around the forward. FSDP computes in half by its own policy, and gathers in it too."""
    dtype = compute_dtype(case.precision)
    if dtype is None or case.strategy == "fsdp":
        return nullcontext()
    return torch.autocast(device.type, dtype)


def grad_scaler(case: Case, device: torch.device) -> torch.amp.GradScaler:
    """For fp16, whose small gradients would vanish; for all else it passes things through."""
    return torch.amp.GradScaler(device.type, enabled=case.precision == "fp16")
