"""The one place that knows how torch versions differ (2.6 to 2.13 and on)."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.launch import Numerics

_DDP_PARAMETERS = inspect.signature(DistributedDataParallel.__init__).parameters
# 2.13 deprecates the older names.
_ALL_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def broadcast_buffers_argument(broadcast: bool) -> dict[str, Any]:
    """``broadcast_buffers`` under the name that this version takes without a warning.

    2.13 deprecates it for ``forward_sync_buffers``; the default (True) needs no argument.
    """
    if broadcast:
        return {}
    if "forward_sync_buffers" in _DDP_PARAMETERS:
        return {"forward_sync_buffers": False}
    return {"broadcast_buffers": False}


def flight_recorder_variable() -> str:
    """Return the variable by which this version takes how many collectives it records.

    Before 2.8 only the older name is read, and nothing is recorded by default; later versions
    warn of it.
    """
    newer = torch.__version__ >= "2.8"  # of type TorchVersion, which compares as versions do
    return "TORCH_FR_BUFFER_SIZE" if newer else "TORCH_NCCL_TRACE_BUFFER_SIZE"


def flight_recorder_entries(backend: str) -> list[dict[str, Any]]:
    """Collectives that this process has issued, oldest first, from any thread.

    Empty where this version records none for ``backend``, or its
    ``flight_recorder_variable`` is 0.
    NCCL keeps a recorder of its own.
    """
    name = "_dump_nccl_trace_json" if "nccl" in backend else "_dump_fr_trace_json"
    dump = getattr(torch._C._distributed_c10d, name, None)
    if dump is None:
        return []
    entries: list[dict[str, Any]] = json.loads(dump()).get("entries", [])
    return entries


def cudnn_version() -> str | None:
    """Return cuDNN's version, or None where torch has none, without touching a GPU.

    ``torch.backends.cudnn.version()`` asks the GPUs whether they go with it (2.13 does), which
    initialises CUDA in this process.
    """
    cudnn: Any = getattr(torch._C, "_cudnn", None)
    return None if cudnn is None else str(cudnn.getVersionInt())


def set_tf32(allowed: bool) -> None:
    """Let fp32 mean TF32 or not, in matrix products, convolutions and recurrent layers alike.

    These are the older switches, on purpose. From 2.9 on each sets the newer, finer ones with it,
    while torch rejects the older ones after the newer were set: ``cudnn.allow_tf32`` can then
    not be read, nor ``cudnn.flags()`` be entered, as transformers and Inductor do.
    """
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


@contextlib.contextmanager
def ieee_products(device: torch.device) -> Iterator[None]:
    """Compute fp32 matrix products on ``device`` in IEEE's fp32; restore afterwards what was set.

    From 2.9 on this reads and sets the newer switch of the one backend: it can be read whichever
    switches a workload used, where the older one raises after the newer was set.
    """
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    products: Any = getattr(backend, "matmul", None)
    if hasattr(products, "fp32_precision"):
        before = products.fp32_precision
        products.fp32_precision = "ieee"
        yield
        products.fp32_precision = before
    else:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        yield
        torch.set_float32_matmul_precision(before)


def numerics() -> Numerics:
    """Return what this process computes by on its GPU, whichever switches a workload used."""
    convolution: Any = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolution, "fp32_precision"):
        # On a GPU "medium" is what "high" is: both mean TF32.
        products = "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"
        tf32 = convolution.fp32_precision == "tf32"
    else:
        products = torch.get_float32_matmul_precision()
        tf32 = torch.backends.cudnn.allow_tf32
    return Numerics(
        matmul_precision=products,
        convolution_tf32=tf32,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        allocator=torch.cuda.get_allocator_backend(),
    )


def all_gather(output: torch.Tensor, own: torch.Tensor, group: Any) -> None:
    """``own`` of every rank of ``group``, one after the other, into ``output``."""
    _ALL_GATHER(output, own, group=group)


def reduce_scatter(own: torch.Tensor, values: torch.Tensor, group: Any) -> None:
    """This rank's share of the sum of ``values`` over ``group``, into ``own``."""
    _REDUCE_SCATTER(own, values, group=group)


def device_uuid(index: int) -> str:
    """Return the UUID of ``cuda:index`` as CUDA writes it: without NVML's prefix."""
    return str(torch.cuda.get_device_properties(index).uuid)
