"""What an event of a trace is: computation, communication or memory, on a GPU or on the host.

Kernels of NCCL and RCCL have borne several names (``ncclKernel_…`` to 2.18, ``ncclDevKernel_…``
since, ``ncclSymk…``); those of torch's symmetric memory and of custom all-reduces theirs.
On the host a collective is known by its range ``BACKEND:NAME``. Only gloo, MPI and UCC work
there; a range of NCCL is the launch of a kernel. Names repeat: each is looked at once.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

Kind = Literal["computation", "communication", "memory"]

_KERNELS = {"kernel"}
_MEMORY = {"gpu_memcpy", "gpu_memset", "memcpy", "memset"}  # the short ones before torch 1.12
_LAUNCHES = {"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "runtime"}
_OPERATORS = {"cpu_op", "operator"}
WAITS = {"cuda_sync"}  # of a stream, for an event: no work, but HTA counts it

_COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|nvshmem|(one|two)_shot_all_reduce|multimem_|cross_device_reduce",
    re.IGNORECASE,
)
# AMD's runtime copies and fills by kernels of its own.
_COPIES = re.compile(r"^(Memcpy|Memset|CopyHost|CopyDevice|FillBuffer|__amd_rocclr_(copy|fill))")
_HOST_COLLECTIVE = re.compile(r"(gloo|mpi|ucc):\w")
# Operators that do something. Autograd's and a compiler's wrappers hold others, and may wait;
# c10d's only hand over to a worker, or wait for it.
_OPERATOR = re.compile(r"(?!autograd::|torch::|c10d|_c10d|profiler::)\w+::|cpp_fused_")
_STEP = re.compile(r"ProfilerStep#(\d+)")
_MARK = re.compile(rf"{_STEP.pattern}|(nccl|gloo|mpi|ucc):\w|record_param_comms")


@functools.cache
def device_kind(category: str | None, name: str, *, is_collective: bool = False) -> Kind | None:
    """Of an event on a GPU, by Kineto's category; None: it is none, or only an annotation.

    ``is_collective``: its arguments say so, whatever its name.
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
    """Whether the event is the host's call that starts something on a GPU."""
    return (category or "").lower() in _LAUNCHES


@functools.cache
def is_mark(name: str) -> bool:
    """A range that only says what the host was about: a step, or a collective."""
    return _MARK.match(name) is not None


def is_host_collective(name: str) -> bool:
    """A collective that a host thread carries out, for as long as the range lasts."""
    return _HOST_COLLECTIVE.match(name) is not None


@functools.cache
def is_host_work(category: str | None, name: str) -> bool:
    """An operator that computes on the host, not one that wraps others or waits."""
    return (category or "").lower() in _OPERATORS and _OPERATOR.match(name) is not None


def step_number(name: str) -> int | None:
    """Of the annotation that torch.profiler makes of each step."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None
