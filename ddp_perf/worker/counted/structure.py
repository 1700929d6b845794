"""The structure of one step: its collectives, bytes and buckets.

The counts are exact, so they can be judged on any machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_perf.core.launch import Collective, Structure
from ddp_perf.torch_compat import flight_recorder_entries

SETTLED_AFTER = 3  # steps: in the first ones DDP rebuilds its buckets, and broadcasts them

_RECORDER_BYTES = {
    "Float": 4,
    "Double": 8,
    "Half": 2,
    "BFloat16": 2,
    "Long": 8,
    "Int": 4,
    "Byte": 1,
}
_RECORDER_DTYPES = {
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "BFloat16": "bfloat16",
}


def count_structure(module: nn.Module, step: Callable[[], None]) -> Structure:
    """Run ``step`` once and return its structure. Call it after the first SETTLED_AFTER steps."""
    recorded = _last_record(_recorded())
    with _CollectiveCounter() as counter:
        step()
    entries = _recorded()
    new = [entry for entry in entries if entry["record_id"] > recorded]
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return Structure(
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        gradient_bytes=sum(p.numel() * p.element_size() for p in trained),
        buckets=_bucket_bytes(module),
        collectives=tuple(in_order(counter.dispatched, new)),
    )


def _recorded() -> list[dict[str, Any]]:
    """Return the flight recorder's entries, after all collectives on the GPU are finished.

    An older recorder would otherwise read events that NCCL's watchdog may already have destroyed:
    the watchdog retires finished work at the same time.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return flight_recorder_entries(dist.get_backend())


def ddp_logging(module: nn.Module) -> dict[str, int | float | str]:
    """Return DDP's own record of its settings and averages; its times are in nanoseconds.

    Values that JSON cannot represent are left out. The record of any other module is empty.
    """
    if not isinstance(module, DistributedDataParallel):
        return {}
    data: dict[str, Any] = module._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    return {
        name: value
        for name, value in data.items()
        if isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    }


def _bucket_bytes(module: nn.Module) -> tuple[int, ...]:
    data = ddp_logging(module)
    sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    return tuple(int(size) for size in re.findall(r"\d+", sizes))


class Dispatched(NamedTuple):
    """A collective as it was dispatched, with the sizes of its tensors in bytes."""

    collective: Collective
    tensor_bytes: set[int]


class _CollectiveCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A recorder of the c10d operators that this thread and its backward dispatch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dispatched: list[Dispatched] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "c10d" and (tensors := list(_tensors(args))):
            largest = max(tensors, key=lambda tensor: tensor.nbytes)
            collective = Collective(
                kind=_kind(func._schema.name.removeprefix("c10d::")),
                dtype=str(largest.dtype).removeprefix("torch."),
                bytes=max(largest.nbytes, *map(_whole_bytes, args)),
            )
            self.dispatched.append(Dispatched(collective, {tensor.nbytes for tensor in tensors}))
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _whole_bytes(value: Any) -> int:
    """Return the bytes of all ranks' tensors if ``value`` lists them for each device, else 0."""
    if not isinstance(value, list | tuple):
        return 0
    lists = [item for item in value if isinstance(item, list | tuple)]
    return max((sum(tensor.nbytes for tensor in _tensors(each)) for each in lists), default=0)


def _kind(operator: str) -> str:
    """Return one name for the variants of a collective: ``_allgather_base_`` → ``all_gather``."""
    name = operator.strip("_").removesuffix("_coalesced").removesuffix("_base")
    return re.sub(r"^all_?(reduce|gather|to_?all)", r"all_\1", name).replace("toall", "to_all")


def in_order(dispatched: list[Dispatched], entries: list[dict[str, Any]]) -> Iterator[Collective]:
    """Yield all collectives in the order of the flight recorder's entries.

    The recorder also has the collectives that a hook issues in another thread. A dispatched
    collective keeps its kind: over gloo the recorder calls a reduce-scatter an all-reduce.
    """
    left = list(dispatched)
    for recorded in map(_from_recorder, entries):
        match = next((one for one in left if recorded.bytes in one.tensor_bytes), None)
        if match is not None:
            left.remove(match)
        yield recorded if match is None else match.collective
    for one in left:  # the recorder of this version of torch has no entry for it
        yield one.collective


def _last_record(entries: list[dict[str, Any]]) -> int:
    """Return the newest record id, or -1. The recorder is a ring, so its length is no counter."""
    return max((entry["record_id"] for entry in entries), default=-1)


def _from_recorder(entry: dict[str, Any]) -> Collective:
    sizes = [
        math.prod(shape) * _RECORDER_BYTES.get(dtype, 1)
        for shape, dtype in zip(entry["input_sizes"], entry["input_dtypes"], strict=True)
    ]
    dtype = next(iter(entry["input_dtypes"]), "none")
    return Collective(
        kind=_kind(entry["profiling_name"].rpartition(":")[2]),
        dtype=_RECORDER_DTYPES.get(dtype, dtype.lower()),
        bytes=max(sizes, default=0),
    )
