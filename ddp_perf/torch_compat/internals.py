"""The private names of torch that counting, probing and injections need.

Each is looked up when it is used, not when it is imported. So a version of torch without one of
them costs what needs it, and never the times of a launch: timing needs none.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Methods of a process group by which Python code issues collectives; not all versions have each.
ISSUING_METHODS = (
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "barrier",
    "allgather",
    "_allgather_base",
    "allgather_into_tensor_coalesced",
    "gather",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "alltoall",
    "alltoall_base",
)
BUFFER_BROADCAST = "_sync_buffers"  # method of DDP that broadcasts its buffers, and waits


def ddp_record(module: DistributedDataParallel) -> dict[str, Any]:
    """Return DDP's own record of its settings and averages."""
    record: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return record


def set_ddp_rate(module: DistributedDataParallel, steps: int) -> None:
    """Let DDP time its communication once in so many steps."""
    module._set_ddp_runtime_logging_sample_rate(steps)  # type: ignore[no-untyped-call]


def default_store() -> dist.Store:
    """Return the store of the default process group."""
    find: Any = dist.distributed_c10d._get_default_store
    store: dist.Store = find()
    return store


def group_of_name(name: str) -> dist.ProcessGroup:
    """Return the process group that a functional collective names."""
    resolve: Any = dist.distributed_c10d._resolve_process_group
    group: dist.ProcessGroup = resolve(name)
    return group


def unseen_by_modes() -> AbstractContextManager[object]:
    """Return a context inside which no dispatch mode of this thread sees an operation."""
    context: Any = torch._C._DisableTorchDispatch
    entered: AbstractContextManager[object] = context()
    return entered


@contextlib.contextmanager
def modes_disabled() -> Iterator[None]:
    """Run the ``with`` block without the dispatch modes that are in force."""
    with importlib.import_module("torch.utils._python_dispatch")._disable_current_modes():
        yield


def occupy_gpu(cycles: int) -> None:
    """Keep the GPU busy for so many cycles, without waiting for it."""
    sleep: Any = torch.cuda._sleep
    sleep(cycles)


def worker_batches() -> tuple[Any, str]:
    """Return the class of a loader with worker processes, and its method that receives a batch."""
    loading: Any = importlib.import_module("torch.utils.data.dataloader")
    return loading._MultiProcessingDataLoaderIter, "_get_data"


def memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """Return the format in which an operation would make a result like ``tensor``."""
    suggest: Any = importlib.import_module("torch._prims_common").suggest_memory_format
    found: torch.memory_format = suggest(tensor)
    return found


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is of a class that wraps others, as a DTensor."""
    dispatching: Any = importlib.import_module("torch.utils._python_dispatch")
    return bool(dispatching.is_traceable_wrapper_subclass(tensor))


def is_operator(func: Any) -> bool:
    """Return whether what was dispatched is an overload of an operator."""
    return isinstance(func, torch._ops.OpOverload)


def module_call() -> CodeType:
    """Return the code that calls the forward of a module."""
    code: CodeType = nn.Module._wrapped_call_impl.__code__
    return code


def backward_call() -> CodeType:
    """Return the code that runs a backward."""
    run: Any = torch.autograd.graph._engine_run_backward
    code: CodeType = run.__code__
    return code


def next_node() -> int:
    """Return the number that the next node of the autograd graph gets."""
    number: Any = torch.autograd._get_sequence_nr
    return int(number())


def node_at_work() -> Any:
    """Return the node of the autograd graph that the backward runs at the moment, or None."""
    return torch._C._current_autograd_node()


def number_of(node: Any) -> int:
    """Return the number of a node of the autograd graph."""
    return int(node._sequence_nr())


def dynamo_records() -> Any:
    """Return the module with dynamo's records of what it compiled."""
    return importlib.import_module("torch._dynamo.utils")


def dynamo_settings() -> Any:
    """Return the module with dynamo's settings."""
    return importlib.import_module("torch._dynamo.config")
