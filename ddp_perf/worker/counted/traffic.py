"""The bytes that an operation reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ddp_perf.torch_compat.internals import is_wrapper
from ddp_perf.worker.counting.structure import tensors

# By the name of the operation, since no schema has it.
_UNTOUCHED = re.compile(r"aten\.(empty.*|new_empty.*|set_|resize_|record_stream|_unsafe_view)")
_READS_NO_VALUES = re.compile(r"aten\.(.*_like|new_.*)")
_OVERWRITES = re.compile(
    r"aten\.(copy_|zero_|fill_|normal_|uniform_|bernoulli_|random_|exponential_|randperm_"
    r"|_foreach_copy_|_foreach_zero_)"
)
_COPIES_FIRST = "fsdp.all_gather_copy_in"  # into another argument, which it returns
_READS_PART = re.compile(r"aten\.(embedding|gather|index|index_select)")


class Traffic(NamedTuple):
    """Bytes of memory."""

    read: int
    written: int


def operation_traffic(
    name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Traffic:
    """Return the bytes that one call of ``func`` moves. A view moves none.

    An argument that is changed is read and written, unless it is an ``out=`` or is overwritten as
    a whole. A table that is indexed is read as far as the result is large.
    """
    if _UNTOUCHED.fullmatch(name):
        return Traffic(0, 0)
    read, written = [], 0
    changed = False
    for argument, value in _arguments(func, args, kwargs):
        size = sum(map(_touched_bytes, tensors(value)))
        info = argument.alias_info
        if info is None or not info.is_write:
            read.append(size)
            continue
        changed = True
        written += size
        if not argument.kwarg_only and not _OVERWRITES.fullmatch(name):
            read.append(size)
    if name == _COPIES_FIRST:
        return Traffic(read[0], read[0])
    if not changed:
        new = [tensor for tensor in tensors(out) if not _is_shared(tensor, args, kwargs)]
        if not new and any(True for _ in tensors(out)):
            return Traffic(0, 0)  # a view
        written = sum(map(_touched_bytes, new))
    if _READS_NO_VALUES.fullmatch(name):
        return Traffic(0, written)
    if _READS_PART.fullmatch(name):
        read[0] = min(read[0], written)
    return Traffic(sum(read), written)


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors with a storage that ``tensor`` consists of: itself, or a DTensor's part."""
    wrapper: Any = tensor
    if is_wrapper(wrapper):
        for name in wrapper.__tensor_flatten__()[0]:
            for inner in tensors(getattr(tensor, name)):  # nothing for a DTensor's mesh
                yield from plain_tensors(inner)
    elif tensor.layout is torch.strided:
        yield tensor
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())


def storages(value: Any) -> Iterator[torch.UntypedStorage]:
    """Yield the storage of each tensor in an argument or a result of an operator."""
    for tensor in tensors(value):
        for plain in plain_tensors(tensor):
            yield plain.untyped_storage()


def _arguments(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Yield each given argument with its part of the schema."""
    schema = func._schema.arguments
    yield from zip(schema, args, strict=False)
    for argument in schema[len(args) :]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _touched_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of the tensor's elements, each place in memory once."""
    return sum(map(_distinct_bytes, plain_tensors(tensor)))


def _distinct_bytes(tensor: torch.Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride or not size else 1
    return min(elements * tensor.element_size(), tensor.untyped_storage().nbytes())


def _is_shared(tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = {storage._cdata for storage in storages([*args, *kwargs.values()])}
    return all(storage._cdata in given for storage in storages(tensor))
