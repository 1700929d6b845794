"""A dry run on one rank alone: torch dispatches each operation, and computes next to nothing."""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ddp_perf.errors import CountError
from ddp_perf.torch_compat import TorchDispatchMode, infers_on_fake_tensors
from ddp_perf.torch_compat.internals import memory_format
from ddp_perf.worker.counting.structure import tensors as tensors_in
from ddp_perf.worker.lone_group import finished

# A dry run: torch dispatches every operation of a step, and computes next to nothing.
#
# Views and metadata are real. Any other operation allocates its results, whose sizes torch infers
# on the meta device, and leaves them alone: the kernel maps a page when it is first touched. So a
# step fits in little memory at any size, and dispatches what a computed step dispatches.


# Bytes of a tensor that is computed, if its inputs are: a mask, the step number of Adam, the scale
# of a GradScaler. Python code decides by such values.
COMPUTED_BYTES = 2**16

_READ = torch.ops.aten._local_scalar_dense.default  # by the host
_CONVOLUTION = torch.ops.aten.convolution.default
_COALESCE = torch.ops.aten._coalesce.default  # the size of its result depends on indices
_NO_DISPATCH = torch.Tensor.__torch_dispatch__
_META = torch.device("meta")
_MAP_NORESERVE = 0x4000  # its name in mmap is of Python 3.13
_MARK = "_ddp_perf_uncomputed"  # an attribute of storages
# Of an operation on the meta device: it has no kernel there, or the arguments are wrong.
_NOT_INFERRED = (RuntimeError, ValueError, TypeError, IndexError)


class DryRun(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of a dry run.

    An operation is computed if its inputs are computed, and none of its tensors is larger than
    COMPUTED_BYTES. So what is computed depends on sizes only. Other values are zero, or those from
    before an operation in place. An operation that torch cannot infer is computed from them.

    Raises CountError if the shape of a result, or a branch of Python code, depends on a value that
    is not computed. A number that the host reads is 0 then, for it is mostly shown.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inferred: dict[tuple[Any, ...], _Result | None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if infers_on_fake_tensors():
            return func(*args, **kwargs)
        if any(map(dispatches_itself, types)):
            return NotImplemented  # DTensor, for one, then dispatches operations on its own tensors
        tensors = list(tensors_in([*args, *kwargs.values()]))
        traits = _traits(func)
        if func is _COALESCE:
            raise _needs_values(func)
        on_meta = not tensors and kwargs.get("device") == _META
        if on_meta or traits.keeps_data or not all(map(_is_plain, tensors)):
            return func(*args, **kwargs)
        computed = all(map(_is_computed, tensors))
        if func.namespace == "c10d":
            return func(*args, **kwargs) if computed else _skip_collective(func, args)
        result = self._infer(func, tensors, args, kwargs) if traits.returns_tensors else None
        if result is None or (computed and result.largest <= COMPUTED_BYTES):
            if not computed and (traits.needs_values or _decides(func, tensors)):
                raise _needs_values(func)
            out = func(*args, **kwargs)
            if not computed:
                _mark([*_written(func, args, kwargs), *tensors_in(out)])
            elif result is not None and result.is_empty:
                out.zero_()  # a collective that does nothing would leave any values
            return out
        _mark(_written(func, args, kwargs))
        for index, shape in result.resized:
            tensors[index].resize_(shape)
        return _make(result.tree, tensors)

    def _infer(
        self, func: Any, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Result | None:
        """Return the result of the operation without values; None if torch cannot infer it."""
        # A number changes no shape of a list of tensors, but Adam's change in each step.
        number = type if func._schema.name.startswith("aten::_foreach_") else None
        key = (func, _key(args, number), _key(tuple(kwargs.items()), number))
        if key not in self._inferred:
            self._inferred[key] = _infer_on_meta(func, tensors, args, kwargs)
        return self._inferred[key]


def dispatches_itself(kind: type) -> bool:
    """Return whether a class of tensors has its own dispatch. Parameters have none."""
    return getattr(kind, "__torch_dispatch__", _NO_DISPATCH) is not _NO_DISPATCH


def _needs_values(func: Any) -> CountError:
    return CountError(f"{func}: its result depends on values, which a dry run does not compute")


def _decides(func: Any, tensors: list[torch.Tensor]) -> bool:
    """Return whether the host reads a truth value, by which Python code goes one way or another."""
    return func is _READ and tensors[0].dtype is torch.bool


class _Traits(NamedTuple):
    keeps_data: bool  # a view, or a change of a tensor's metadata
    returns_tensors: bool  # or nothing
    needs_values: bool
    written: tuple[tuple[int, str], ...]  # arguments, by place and by name


@functools.cache
def _traits(func: Any) -> _Traits:
    schema = func._schema
    returned = [str(each.type) for each in schema.returns]
    data_dependent = torch.Tag.data_dependent_output in func.tags
    return _Traits(
        keeps_data=func.is_view or torch.Tag.inplace_view in func.tags,
        returns_tensors=not returned or any("Tensor" in each for each in returned),
        needs_values=torch.Tag.dynamic_output_shape in func.tags
        or (data_dependent and func is not _READ),
        written=tuple(
            (place, argument.name)
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ),
    )


class _Argument(NamedTuple):
    number: int  # of the tensors among the arguments, and then of the fresh ones


class _View(NamedTuple):
    number: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class _Fresh(NamedTuple):
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    nbytes: int  # of its storage
    empty: bool  # it is allocated, and nothing more


class _Result(NamedTuple):
    """The results of an operation: lists and tuples of _Argument, _View, _Fresh and constants."""

    tree: Any
    largest: int  # bytes of a fresh tensor
    resized: tuple[tuple[int, tuple[int, ...]], ...]  # tensors of ``out=``, with their shape
    is_empty: bool  # nothing is written to it


def _infer_on_meta(
    func: Any, tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Result | None:
    metas = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=_META) for t in tensors]
    storages = [meta.untyped_storage()._cdata for meta in metas]
    left = iter(metas)
    on_meta = _map((args, kwargs), lambda value: _meta_value(value, left))
    if not tensors and any(argument.name == "device" for argument in func._schema.arguments):
        on_meta[1]["device"] = _META
    try:
        out = func(*on_meta[0], **on_meta[1])
    except _NOT_INFERRED:
        return None
    if not all(each.layout is torch.strided for each in tensors_in(out)):
        return None
    if func is _CONVOLUTION:
        out = out.contiguous(memory_format=_order(metas[0], metas[1]))
    fresh: list[int] = []
    empty = func._schema.name.startswith(("aten::empty", "aten::new_empty"))

    def describe(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        storage, shape, stride = value.untyped_storage(), tuple(value.shape), value.stride()
        if storage._cdata not in storages:
            fresh.append(storage.nbytes())
            metas.append(value)  # another result may be a view of it
            storages.append(storage._cdata)
            return _Fresh(
                shape, stride, value.dtype, int(value.storage_offset()), storage.nbytes(), empty
            )
        index = storages.index(storage._cdata)
        if value is metas[index]:
            return _Argument(index)
        offset = int(value.storage_offset() - metas[index].storage_offset())
        return _View(index, shape, stride, offset)

    return _Result(
        tree=_map(out, describe),
        largest=max(fresh, default=0),
        resized=tuple(
            (index, tuple(meta.shape))
            for index, (meta, tensor) in enumerate(zip(metas, tensors, strict=False))
            if meta.shape != tensor.shape
        ),
        is_empty=empty,
    )


def _order(*tensors: torch.Tensor) -> torch.memory_format:
    """Return the order of a convolution's result: its kernels keep channels last, unlike on meta.

    The first tensor that has its channels last decides.
    """
    orders = map(memory_format, tensors)
    return next(
        (one for one in orders if one is not torch.contiguous_format), torch.contiguous_format
    )


def _meta_value(value: Any, metas: Iterator[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return next(metas)
    if isinstance(value, torch.Generator):  # it is the CPU's
        return None
    return _META if isinstance(value, torch.device) else value


def _make(tree: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(tree, _Fresh):
        made = _allocate(tree)
        setattr(made.untyped_storage(), _MARK, True)
        tensors.append(made)
        return made
    if isinstance(tree, _Argument):
        return tensors[tree.number]
    if isinstance(tree, _View):
        base = tensors[tree.number]
        return base.as_strided(tree.shape, tree.stride, base.storage_offset() + tree.offset)
    if isinstance(tree, list | tuple):
        return type(tree)(_make(each, tensors) for each in tree)
    return tree


def _allocate(fresh: _Fresh) -> torch.Tensor:
    """Return a tensor of zeros whose pages are untouched; a large empty one may have any values.

    The pages are the kernel's own: the C library would hand out memory that is written to.
    """
    if fresh.nbytes <= COMPUTED_BYTES:
        memory = torch.zeros(fresh.nbytes, dtype=torch.uint8)
    elif fresh.empty and fresh.nbytes <= _most_memory():  # FSDP frees and fills its storage
        return torch.empty_strided(fresh.shape, fresh.stride, dtype=fresh.dtype)
    else:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        memory = torch.frombuffer(mmap.mmap(-1, fresh.nbytes, flags), dtype=torch.uint8)
    made = torch.empty(0, dtype=fresh.dtype)
    return made.set_(memory.untyped_storage(), fresh.offset, fresh.shape, fresh.stride)


@functools.cache
def _most_memory() -> int:
    """Return the bytes that one allocation may have: the kernel refuses more than there are."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _skip_collective(func: Any, args: tuple[Any, ...]) -> Any:
    _mark(tensors_in(args[0]))  # what a collective writes comes first
    returns = len(func._schema.returns)
    work = finished(args[0]).boxed()
    return (args[0], work) if returns == 2 else work if returns else None


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type == "cpu"


def _is_computed(tensor: torch.Tensor) -> bool:
    return tensor.nbytes <= COMPUTED_BYTES and not hasattr(tensor.untyped_storage(), _MARK)


def _mark(tensors: Any) -> None:
    for tensor in tensors:
        if tensor.layout is torch.strided:
            setattr(tensor.untyped_storage(), _MARK, True)


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    for place, name in _traits(func).written:
        yield from tensors_in(args[place] if place < len(args) else kwargs.get(name))


def _map(value: Any, change: Any) -> Any:
    """Return ``value`` with each leaf of its lists, tuples and dicts changed, in their order."""
    if isinstance(value, list | tuple):
        return type(value)(_map(each, change) for each in value)
    if isinstance(value, dict):
        return {name: _map(each, change) for name, each in value.items()}
    return change(value)


def _key(value: Any, number: Any) -> Any:
    """Return what a result without values depends on; of a float only its ``number``, if given."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, list | tuple):
        return type(value), tuple(_key(each, number) for each in value)
    if isinstance(value, torch.Generator):
        return torch.Generator
    if number is not None and isinstance(value, float):
        return number(value)
    return type(value), value
