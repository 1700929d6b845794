"""The structure of one step: its collectives, bytes, buckets and floating-point operations."""

from __future__ import annotations

import ctypes
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import flop_registry

from ddp_perf.core.launch import Collective, Structure
from ddp_perf.torch_compat import (
    TorchDispatchMode,
    allowed_tf32,
    flight_recorder_entries,
    uncompiled,
)
from ddp_perf.torch_compat.internals import ddp_record
from ddp_perf.worker.rank_context import Examination
from ddp_perf.worker.steps.protocol import StepPlan

# A dispatch mode that notes operations, and lets the step go on whatever happens to its notes.


class NotingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A recorder of the operations that this thread and its backward dispatch.

    An error of ``note`` is raised by ``check``, after the step: within it, the error would end the
    step on this rank alone, while other ranks wait for it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._error: Exception | None = None

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Note one operation that returned ``out``."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise the first error of the notes, if there was one."""
        if self._error is not None:
            raise self._error

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._error is None:
            try:
                self.note(func, args, kwargs or {}, out)
            except Exception as error:  # noqa: BLE001 – ``check`` raises it
                self._error = error
        return out


# The floating-point operations of a step, counted by torch's own formulas.


_FORMATS = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}


class FlopCounter(NotingMode):  # type: ignore[no-untyped-call]
    """A counter of the operations in matrix products, convolutions and attentions.

    It counts what this thread and its backward dispatch. A multiplication and an addition are two
    operations. Elementwise operations are left out, as in
    ``torch.utils.flop_counter.FlopCounterMode``. That class also tracks modules, which is not
    needed here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_format: dict[str, int] = {}

    @property
    def by_format(self) -> dict[str, int]:
        """The operations so far, by their format. It raises what failed to count one."""
        self.check()
        return self._by_format

    @property
    def flops(self) -> int:
        """The operations so far, in all formats."""
        return sum(self.by_format.values())

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if flops := operation_flops(func, args, kwargs, out):
            used = _format(func, args)
            self._by_format[used] = self._by_format.get(used, 0) + flops


def operation_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
    """Return the floating-point operations of one call that returned ``out``, or 0."""
    formula = flop_registry.get(getattr(func, "_overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=out))


def _format(func: Any, args: tuple[Any, ...]) -> str:
    """Return the format that a product or a convolution is computed in, by its first operand."""
    operand = next(one for one in args if isinstance(one, torch.Tensor))
    if operand.dtype == torch.float32 and operand.is_cuda:
        products, convolutions = allowed_tf32()
        is_convolution = "conv" in func._schema.name
        return "tf32" if (convolutions if is_convolution else products != "highest") else "fp32"
    return _FORMATS.get(operand.dtype, str(operand.dtype).removeprefix("torch."))


# The structure of one step: its collectives, bytes and buckets.
#
# The counts are exact, so they can be judged on any machine.


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
    return flight_recorder_entries()


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


# A checksum of a model, to check that ranks that trained together have equal parameters.


def parameter_digest(module: nn.Module) -> int:
    """Return the CRC-32 of all parameters, which is equal on ranks with the same bits.

    Collective if the parameters are sharded: they are gathered one at a time.
    """
    digest = 0
    for parameter in module.parameters():
        data = parameter.detach()
        if isinstance(data, DTensor):
            data = data.full_tensor()
        data = data.cpu().contiguous().flatten().view(torch.uint8)
        if data.numel():  # an empty one has no address, and zlib would begin again at 0
            # Not data.numpy(): torch runs without numpy.
            memory = (ctypes.c_ubyte * data.numel()).from_address(data.data_ptr())
            digest = zlib.crc32(memory, digest)
    return digest
