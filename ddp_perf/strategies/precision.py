"""The number formats of forward and backward."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from ddp_perf.core.case import Case
from ddp_perf.core.strategy import Precision

_COMPUTE_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def compute_dtype(precision: Precision | None) -> torch.dtype | None:
    """Return the half format of the computation, or None for float32, the parameters' format."""
    return None if precision is None else _COMPUTE_DTYPES.get(precision)


def autocast(case: Case, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context of the forward; an empty one for fp32 and for FSDP.

    FSDP has its own policy of mixed precision, which also gathers in the half format.
    """
    dtype = compute_dtype(case.precision)
    if dtype is None or case.strategy == "fsdp":
        return nullcontext()
    return torch.autocast(device.type, dtype)


def grad_scaler(case: Case, device: torch.device) -> torch.amp.GradScaler:
    """Return the gradient scaler, which scales for fp16 only: small gradients would underflow."""
    return torch.amp.GradScaler(device.type, enabled=case.precision == "fp16")
