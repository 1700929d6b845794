"""The kind of an event of a trace: computation, communication or memory, on a GPU or on the host.

Kernels of NCCL and RCCL have had several names (``ncclKernel_…`` up to 2.18, ``ncclDevKernel_…``
since then, ``ncclSymk…``). Kernels of torch's symmetric memory and of custom all-reduces have
others. On the host the range ``BACKEND:NAME`` marks a collective. Only gloo, MPI and UCC work on
the host; a range of NCCL is the launch of a kernel. Names repeat, so results are cached.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

Kind = Literal["computation", "communication", "memory"]

_KERNELS = {"kernel"}
_MEMORY = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}  # the short names before torch 1.12
_LAUNCHES = {"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "runtime"}
_OPERATORS = {"cpu_op", "operator"}
WAITS = {"cuda_sync"}  # of a stream for an event: not work, but HTA counts it

_COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|nvshmem|(one|two)_shot_all_reduce|multimem_|cross_device_reduce",
    re.IGNORECASE,
)
# AMD's runtime copies and fills with its own kernels.
_COPIES = re.compile(r"^(Memcpy|Memset|CopyHost|CopyDevice|FillBuffer|__amd_rocclr_(copy|fill))")
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):\w")
# Operators that compute. Autograd's and a compiler's wrappers contain others, and may wait. c10d's
# operators only pass work to a worker, or wait for it.
_OPERATOR = re.compile(r"(?!autograd::|torch::|c10d|_c10d|profiler::)\w+::|cpp_fused_")
# Calls in which the host waits for the GPU. A query does not wait.
_SYNCHRONISATION = re.compile(
    r"(cuda|hip)(Device|Stream|Event)Synchronize|cu(Ctx|Stream|Event)Synchronize"
    r"|(cuda|hip)(Memcpy(2D|3D|ToSymbol|FromSymbol|Peer)?|Free(Host)?)"
    r"|cuMemcpy(HtoD|DtoH)(_v2)?"
)
_STEP = re.compile(r"ProfilerStep#(\d+)")
_MARK = re.compile(rf"{_STEP.pattern}|(nccl|gloo|mpi|ucc):\w|record_param_comms")


@functools.cache
def device_kind(category: str | None, name: str, *, is_collective: bool = False) -> Kind | None:
    """Return the kind of an event on a GPU, by Kineto's category; None for any other event.

    An annotation has no kind. `is_collective` is true if the event's arguments name a collective.
    """
    category = (category or "").lower()
    if category in _MEMORY:
        return "memory"
    if category not in _KERNELS:
        return None
    if is_collective or _COMMUNICATION.search(name):
        return "communication"
    return "memory" if _COPIES.match(name) else "computation"


def is_launch(category: str | None) -> bool:
    """Return whether the event is a call of the host that starts work on a GPU."""
    return (category or "").lower() in _LAUNCHES


@functools.cache
def is_synchronisation(category: str | None, name: str) -> bool:
    """Return whether the event is a call of the GPU's runtime in which the host waits for it."""
    return is_launch(category) and _SYNCHRONISATION.fullmatch(name) is not None


@functools.cache
def is_mark(name: str) -> bool:
    """Return whether the event is an annotation of the host: a step or a collective."""
    return _MARK.match(name) is not None


def is_host_collective(name: str) -> bool:
    """Return whether the range is a collective that a host thread carries out."""
    return _HOST_COLLECTIVE.match(name) is not None


@functools.cache
def is_host_work(category: str | None, name: str) -> bool:
    """Return whether the event is an operator that computes on the host.

    An operator that wraps others, or waits, does not compute.
    """
    return (category or "").lower() in _OPERATORS and _OPERATOR.match(name) is not None


def step_number(name: str) -> int | None:
    """Return the number in torch.profiler's annotation of a step; None for another name."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None
