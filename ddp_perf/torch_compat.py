"""The one place that knows how torch versions differ (2.6 to 2.13 and on)."""

from __future__ import annotations

import inspect
import json
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

_DDP_PARAMETERS = inspect.signature(DistributedDataParallel.__init__).parameters


def broadcast_buffers_argument(broadcast: bool) -> dict[str, Any]:
    """``broadcast_buffers`` under the name that this version takes without a warning.

    2.13 deprecates it for ``forward_sync_buffers``; the default (True) needs no argument.
    """
    if broadcast:
        return {}
    if "forward_sync_buffers" in _DDP_PARAMETERS:
        return {"forward_sync_buffers": False}
    return {"broadcast_buffers": False}


def flight_recorder_entries(backend: str) -> list[dict[str, Any]]:
    """Collectives that this process has issued, oldest first, from any thread.

    Empty where this version records none for ``backend``, or TORCH_FR_BUFFER_SIZE is 0.
    NCCL keeps a recorder of its own.
    """
    name = "_dump_nccl_trace_json" if backend == "nccl" else "_dump_fr_trace_json"
    dump = getattr(torch._C._distributed_c10d, name, None)
    if dump is None:
        return []
    entries: list[dict[str, Any]] = json.loads(dump()).get("entries", [])
    return entries


def forbid_tf32() -> None:
    """fp32 means fp32, in matrix products and in convolutions."""
    torch.set_float32_matmul_precision("highest")
    convolution: Any = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolution, "fp32_precision"):  # from 2.9 on; the older switch warns there
        convolution.fp32_precision = "ieee"
    else:
        torch.backends.cudnn.allow_tf32 = False


def device_uuid(index: int) -> str:
    """The UUID of ``cuda:index``, as NVML writes it."""
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"
