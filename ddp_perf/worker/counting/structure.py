"""The structure of one step: its collectives, bytes and buckets.

The counts are exact, so they can be judged on any machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_perf.core.launch import Collective, Structure
from ddp_perf.torch_compat import flight_recorder_entries, uncompiled
from ddp_perf.torch_compat.internals import ddp_record
from ddp_perf.worker.counted.flops import FlopCounter
from ddp_perf.worker.counted.noting import NotingMode
from ddp_perf.worker.examination import Examination
from ddp_perf.worker.steps.plan import StepPlan

COLLECTIVE_NAMESPACES = frozenset({"c10d", "_c10d_functional"})
_OF_RESULTS = frozenset({"wait_tensor", "_wrap_tensor_autograd"})  # of a functional collective
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


class StepCounts(NamedTuple):
    """The exact counts of one step."""

    structure: Structure
    flops_by_format: dict[str, int]

    @property
    def flops(self) -> int:
        """The operations in all formats."""
        return sum(self.flops_by_format.values())


def count_structure(module: nn.Module, examination: Examination) -> StepPlan[StepCounts | None]:
    """Return the counts of the next step, or None if they fail: the step itself goes on.

    Begin it after the first SETTLED_AFTER steps.
    """
    recorded = examination.alone("structure", lambda: _last_record(_recorded()))
    with uncompiled(), FlopCounter() as flops, _CollectiveCounter() as counter:
        yield
    if recorded is None:
        return None

    def counts() -> StepCounts:
        new = [entry for entry in _recorded() if entry["record_id"] > recorded]
        counter.check()
        collectives = in_order(counter.dispatched, new)
        return StepCounts(structure_of(module, collectives), flops.by_format)

    return examination.alone("structure", counts)


def structure_of(module: nn.Module, collectives: Iterable[Collective]) -> Structure:
    """Return the structure of a step of ``module`` that issues ``collectives``."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return Structure(
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        gradient_bytes=sum(p.numel() * p.element_size() for p in trained),
        buckets=_bucket_bytes(module),
        collectives=tuple(collectives),
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
    return {
        name: value
        for name, value in ddp_record(module).items()
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


class _CollectiveCounter(NotingMode):  # type: ignore[no-untyped-call]
    """A recorder of the c10d operators that this thread and its backward dispatch."""

    def __init__(self) -> None:
        super().__init__()
        self.dispatched: list[Dispatched] = []

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if (collective := dispatched_collective(func, args, out)) is not None:
            self.dispatched.append(collective)


def dispatched_collective(func: Any, args: tuple[Any, ...], out: Any) -> Dispatched | None:
    """Return the collective that ``func`` issued when it returned ``out``; None if it is none.

    A functional collective returns what the others write to an argument. To wait for its result,
    or to wrap it, is none.
    """
    namespace, _, operator = func._schema.name.partition("::")
    if namespace not in COLLECTIVE_NAMESPACES or operator in _OF_RESULTS:
        return None
    values = args if namespace == "c10d" else (*args, out)
    found = list(tensors(values))
    if not found:
        return None
    found = [one._values() if one.is_sparse else one for one in found]
    largest = max(found, key=lambda tensor: tensor.nbytes)
    collective = Collective(
        kind=_kind(operator),
        dtype=str(largest.dtype).removeprefix("torch."),
        bytes=max(largest.nbytes, *map(_whole_bytes, values)),
    )
    return Dispatched(collective, {tensor.nbytes for tensor in found})


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of an argument or a result of an operator, which may be nested lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def _whole_bytes(value: Any) -> int:
    """Return the bytes of all ranks' tensors if ``value`` lists them for each device, else 0."""
    if not isinstance(value, list | tuple):
        return 0
    lists = [item for item in value if isinstance(item, list | tuple)]
    return max((sum(tensor.nbytes for tensor in tensors(each)) for each in lists), default=0)


def _kind(operator: str) -> str:
    """Return one name for the variants of a collective: ``_allgather_base_`` → ``all_gather``."""
    name = operator.strip("_")
    for suffix in ("_out", "_coalesced", "_base", "_into_tensor", "_tensor", "_single"):
        name = name.removesuffix(suffix)
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
